"""Every side of a comparison against one of them: the long form of differences, and what flipped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from agentsys.analysis.metrics.contenders import Axis, Contenders, contenders
from agentsys.analysis.metrics.difference_row import ALL_CASES, EXPOSED, Contest, DifferenceRow
from agentsys.analysis.metrics.own_metric import Metric, answered_pairs
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    METRIC_TITLES,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MeasuredCell,
    number_of,
    percent,
)
from agentsys.analysis.statistics.difference_test import p_value, smallest_detectable
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side
from agentsys.analysis.statistics.paired import (
    Pair,
    Pairing,
    changed,
    compared,
    exposed_in_both,
    pair_up,
)
from agentsys.analysis.statistics.sign_flips import SIGN_DRAWS, SignDraws
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import NO_ATTACK, CaseRow

COMPARED_METRICS = (BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR)

_SIDES = {
    BENIGN_UTILITY: Side.SOLVED,
    UTILITY_UNDER_ATTACK: Side.SOLVED,
    TARGETED_ASR: Side.INJECTED,
}


class CaseFlip(NamedTuple):
    """A case whose outcome differs."""

    contest: Contest
    metric: str
    gained: bool
    """Whether the outcome occurred on the compared side; otherwise on the baseline's."""
    pair: Pair


@dataclass(frozen=True)
class Comparison:
    """All contests of some folders."""

    by: Axis
    """What the sides differ in."""
    baseline: str
    rows: tuple[DifferenceRow, ...]
    """Sorted by contest, metric, `cases` (all first), suite (`overall` and `pooled` last)."""
    flips: tuple[CaseFlip, ...]
    """On all cases, in the order of the rows."""
    pairings: Mapping[Contest, Pairing]
    """Of every contest, those without a shared case included."""
    unopposed: Mapping[MeasuredCell, int]
    """Where the baseline alone was run -> its cases."""
    titles: Mapping[str, str] = field(default_factory=lambda: METRIC_TITLES)
    """Metric -> heading."""
    notes: tuple[str, ...] = ()
    """How the sides were chosen, and what is in no side."""


def compare(
    cases: Contenders | Iterable[CaseRow],
    baseline: str | None = None,
    metrics: Sequence[str] = COMPARED_METRICS,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    draws: int = SIGN_DRAWS,
) -> Comparison:
    """Compare every other side with the baseline, on the cases that both have.

    Args:
        cases: The sides; or cases in any order, whose defenses are then compared.
        baseline: The side to compare with; None: `none`, or the first if there is no such side.
        metrics: Some of `COMPARED_METRICS`.
        errors: What errored cases count as.
        own: Further metrics, of the user's own; compared on the cases that they answer for on both sides.
        draws: Number of sign flips that a difference is compared with.

    Raises:
        ConfigError: If a metric is unknown, the baseline is not among the sides, or there is only one side.
    """
    for metric in metrics:
        if metric not in COMPARED_METRICS:
            raise ConfigError(unknown_name("metric", metric, COMPARED_METRICS))
    sides = cases if isinstance(cases, Contenders) else contenders(cases)
    baseline = sides.baseline if baseline is None else baseline
    _check_sides(sides, baseline)
    fields_of = _fields(sides)
    pairings = _pairings(sides.by, fields_of, baseline, errors)
    signs = SignDraws(draws)
    rows: list[DifferenceRow] = []
    flips: list[CaseFlip] = []
    for contest, pairing in pairings.items():
        for outcome in _outcomes(contest, pairing, metrics, own, errors):
            rows += _rows(contest, outcome, pairing, signs)
            flips += _flips(contest, outcome)
    unopposed = {
        field: len(found[baseline]) for field, found in fields_of.items() if found.keys() == {baseline}
    }
    titles = METRIC_TITLES | {metric.name: metric.title for metric in own}
    return Comparison(
        sides.by, baseline, tuple(_corrected(rows)), tuple(flips), pairings, unopposed, titles, sides.notes
    )


def _fields(sides: Contenders) -> dict[MeasuredCell, dict[str, list[CaseRow]]]:
    """Field -> side -> cases; fields sorted, benign ones before attacked ones."""
    found: defaultdict[MeasuredCell, dict[str, list[CaseRow]]] = defaultdict(dict)
    for side, cases in sides.cases.items():
        for case in cases:
            found[sides.field_of(case)].setdefault(side, []).append(case)
    return {
        field: found[field]
        for field in sorted(found, key=lambda key: (*key[:4], key.attack != NO_ATTACK, key.attack))
    }


def _check_sides(sides: Contenders, baseline: str) -> None:
    if baseline not in sides.cases:
        known = unknown_name(f"baseline, by {sides.by},", baseline, sides.cases)
        raise ConfigError(f"{known} Name one with --baseline.")
    if len(sides.cases) == 1:
        raise ConfigError(
            f"Only '{baseline}' is in these folders: add the folder of another {sides.by}'s run."
        )


def _pairings(
    by: Axis, fields_of: Mapping[MeasuredCell, Mapping[str, list[CaseRow]]], baseline: str, errors: ErrorRule
) -> dict[Contest, Pairing]:
    return {
        Contest(by, field, baseline, side): pair_up(
            found.get(baseline, []), found[side], errors, attrgetter("task_key")
        )
        for field, found in fields_of.items()
        for side in sorted(found)
        if side != baseline
    }


class _ComparedOutcome(NamedTuple):
    """The outcome that a metric asks about, in the cases that two sides share."""

    metric: str
    pairs: tuple[Pair, ...]
    side: Side
    errors: ErrorRule


def _outcomes(
    contest: Contest, pairing: Pairing, metrics: Sequence[str], own: Sequence[Metric], errors: ErrorRule
) -> Iterator[_ComparedOutcome]:
    for metric in metrics:
        if (metric == BENIGN_UTILITY) is (contest.field.attack == NO_ATTACK) and pairing.pairs:
            yield _ComparedOutcome(metric, pairing.pairs, _SIDES[metric], errors)
    for one in own:
        if pairs := answered_pairs(pairing.pairs, one):
            yield _ComparedOutcome(one.name, pairs, Side.SOLVED, ErrorRule.REPORT)


def _rows(
    contest: Contest, outcome: _ComparedOutcome, pairing: Pairing, signs: SignDraws
) -> Iterator[DifferenceRow]:
    for which, pairs in ((ALL_CASES, outcome.pairs), (EXPOSED, exposed_in_both(outcome.pairs))):
        gained, lost = (changed(pairs, outcome.side, outcome.errors, to=to) for to in (True, False))
        levels = compared(pairs, outcome.side, signs, outcome.errors) if pairs else {}
        for suite, found in levels.items():
            won, gone = _in_suite(gained, suite), _in_suite(lost, suite)
            differing = [*won, *gone]
            tested = number_of(found.difference)
            p = p_value(found.difference)
            yield DifferenceRow(
                *MeasuredCell.of(pairing.pairs[0].defense),
                by=contest.by.value,
                baseline=contest.baseline,
                compared=contest.compared,
                suite=suite,
                metric=outcome.metric,
                cases=which,
                baseline_value=percent(found.baseline),
                compared_value=percent(found.defense),
                difference=tested.value,
                ci_low=tested.ci_low,
                ci_high=tested.ci_high,
                p=p,
                p_holm=p,
                n=tested.n,
                gained=len(won),
                lost=len(gone),
                differing_user_tasks=len(
                    {(pair.baseline.suite, pair.baseline.user_task_id) for pair in differing}
                ),
                differing_injection_tasks=len(set(map(injection_task, differing)) - {None}),
                smallest_detectable=percent(smallest_detectable(found.difference)),
                errored=pairing.errored,
                only_baseline=pairing.only_baseline,
                only_compared=pairing.only_defense,
            )


def _in_suite(pairs: Iterable[Pair], suite: str) -> list[Pair]:
    return [pair for pair in pairs if suite in (OVERALL, POOLED, pair.baseline.suite)]


def injection_task(pair: Pair) -> tuple[str, str] | None:
    """Suite and injection task of a pair; None for a benign one, or an attack without a goal."""
    case = pair.baseline
    return None if case.injection_task_id is None else (case.suite, case.injection_task_id)


def _flips(contest: Contest, outcome: _ComparedOutcome) -> Iterator[CaseFlip]:
    for gained in (True, False):
        for pair in changed(outcome.pairs, outcome.side, outcome.errors, to=gained):
            yield CaseFlip(contest, outcome.metric, gained, pair)


def _corrected(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Holm's correction inside each table: overall, pooled and single suites, all and exposed cases apart."""

    def family(index: int) -> tuple[str, str]:
        row = rows[index]
        return row.suite if row.suite in (OVERALL, POOLED) else "suite", row.cases

    # An undefined test is no test.
    families = group_by((index for index, row in enumerate(rows) if not math.isnan(row.p)), family)
    corrected = list(rows)
    for members in families.values():
        for index, p in zip(members, holm([rows[index].p for index in members]), strict=True):
            corrected[index] = replace(rows[index], p_holm=p)
    return corrected


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of one family, none of them nan, for each other.

    Returns:
        The smallest p times their number, the next one times one less and so on, never falling, at most 1.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
