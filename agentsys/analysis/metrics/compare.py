"""Every defense in some folders against one of them: the long form of differences, and what flipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentsys.analysis.metrics.difference_row import ALL_CASES, EXPOSED, Contest, DifferenceRow, Field
from agentsys.analysis.metrics.own_metric import Metric, answered_pairs, titles_of
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    METRIC_TITLES,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    percent,
)
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side
from agentsys.analysis.statistics.intervals import difference_interval
from agentsys.analysis.statistics.paired import (
    Compared,
    Pair,
    Pairing,
    changed,
    compared,
    exposed_in_both,
    p_value,
    pair_up,
)
from agentsys.analysis.statistics.power import smallest_detectable
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
    """Whether the outcome occurred under the defense; otherwise under the baseline."""
    pair: Pair


@dataclass(frozen=True)
class Comparison:
    """All contests of some folders."""

    baseline: str
    rows: tuple[DifferenceRow, ...]
    """Sorted by contest, metric, `cases` (all first), suite (`overall` and `pooled` last)."""
    flips: tuple[CaseFlip, ...]
    """On all cases, in the order of the rows."""
    pairings: Mapping[Contest, Pairing]
    """Of every contest, those without a shared case included."""
    unopposed: Mapping[Field, int]
    """Where the baseline alone was run -> its cases."""
    titles: Mapping[str, str] = field(default_factory=lambda: METRIC_TITLES)
    """Metric -> heading."""


def compare(
    cases: Iterable[CaseRow],
    baseline: str = "none",
    metrics: Sequence[str] = COMPARED_METRICS,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    replicates: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare every other defense with the baseline, on the cases that both have.

    Args:
        cases: Cases in any order. Injection tasks run as user tasks are left out.
        baseline: The defense to compare with.
        metrics: Some of `COMPARED_METRICS`.
        errors: What errored cases count as.
        own: Further metrics, of the user's own; compared on the cases that they answer for on both sides.
        replicates: Number of bootstrap replicates.
        seed: Seed of the bootstrap's draws.

    Raises:
        ConfigError: If a metric is unknown, the baseline is not among the defenses, or no other
            defense has a case of the same kind.
    """
    for metric in metrics:
        if metric not in COMPARED_METRICS:
            raise ConfigError(unknown_name("metric", metric, COMPARED_METRICS))
    fields_of = _fields([case for case in cases if not case.is_injection_task_alone])
    _check_defenses(fields_of, baseline)
    pairings = _pairings(fields_of, baseline, errors)
    resampler = Resampler(replicates, seed)
    rows: list[DifferenceRow] = []
    flips: list[CaseFlip] = []
    for contest, pairing in pairings.items():
        for outcome in _outcomes(contest, pairing, metrics, own, errors):
            rows += _rows(contest, outcome, pairing, resampler)
            flips += _flips(contest, outcome)
    unopposed = {
        field: len(found[baseline]) for field, found in fields_of.items() if found.keys() == {baseline}
    }
    titles = METRIC_TITLES | titles_of(own)
    return Comparison(baseline, tuple(_corrected(rows)), tuple(flips), pairings, unopposed, titles)


def _fields(cases: Iterable[CaseRow]) -> dict[Field, dict[str, list[CaseRow]]]:
    """Field -> defense -> cases, sorted, benign fields before attacked ones."""
    found: defaultdict[Field, dict[str, list[CaseRow]]] = defaultdict(dict)
    for case in cases:
        field = Field(case.benchmark, case.version, case.shown_model, case.attack)
        found[field].setdefault(case.defense, []).append(case)
    return {
        field: found[field]
        for field in sorted(found, key=lambda key: (*key[:3], key[3] != NO_ATTACK, key[3]))
    }


def _check_defenses(fields_of: Mapping[Field, Mapping[str, object]], baseline: str) -> None:
    defenses = {defense for found in fields_of.values() for defense in found}
    if baseline not in defenses:
        raise ConfigError(unknown_name("baseline", baseline, defenses) + " Name one with --baseline.")
    if len(defenses) == 1:
        raise ConfigError(f"Only '{baseline}' is in these folders: add the folder of another defense's run.")


def _pairings(
    fields_of: Mapping[Field, Mapping[str, list[CaseRow]]], baseline: str, errors: ErrorRule
) -> dict[Contest, Pairing]:
    return {
        Contest(field, baseline, defense): pair_up(found.get(baseline, []), found[defense], errors)
        for field, found in fields_of.items()
        for defense in sorted(found)
        if defense != baseline
    }


class _ComparedOutcome(NamedTuple):
    """The outcome that a metric asks about, in the cases that two defenses share."""

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
    contest: Contest, outcome: _ComparedOutcome, pairing: Pairing, resampler: Resampler
) -> Iterator[DifferenceRow]:
    for which, pairs in ((ALL_CASES, outcome.pairs), (EXPOSED, exposed_in_both(outcome.pairs))):
        gained, lost = (changed(pairs, outcome.side, outcome.errors, to=to) for to in (True, False))
        levels = compared(pairs, outcome.side, resampler, outcome.errors) if pairs else {}
        for suite, found in levels.items():
            row = _row(contest, suite, outcome.metric, which, found, pairing)
            yield replace(row, gained=_in_suite(gained, suite), lost=_in_suite(lost, suite))


def _row(
    contest: Contest, suite: str, metric: str, which: str, found: Compared, pairing: Pairing
) -> DifferenceRow:
    interval = difference_interval(found.difference)
    p = p_value(found.difference)
    return DifferenceRow(
        *contest.field,
        baseline=contest.baseline,
        defense=contest.defense,
        suite=suite,
        metric=metric,
        cases=which,
        baseline_value=percent(found.baseline),
        defense_value=percent(found.defense),
        difference=percent(found.difference.value),
        ci_low=percent(interval.low),
        ci_high=percent(interval.high),
        p=p,
        p_holm=p,
        n=found.difference.n,
        gained=0,
        lost=0,
        smallest_detectable=percent(smallest_detectable(found.difference)),
        errored=pairing.errored,
        only_baseline=pairing.only_baseline,
        only_defense=pairing.only_defense,
    )


def _in_suite(pairs: Iterable[Pair], suite: str) -> int:
    return sum(suite in (OVERALL, POOLED, pair.baseline.suite) for pair in pairs)


def _flips(contest: Contest, outcome: _ComparedOutcome) -> Iterator[CaseFlip]:
    for gained in (True, False):
        for pair in changed(outcome.pairs, outcome.side, outcome.errors, to=gained):
            yield CaseFlip(contest, outcome.metric, gained, pair)


def _corrected(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Holm's correction inside each table: overall, pooled and single suites, all and exposed cases apart."""
    families: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.p == row.p:  # an undefined test is no test
            level = row.suite if row.suite in (OVERALL, POOLED) else "suite"
            families[level, row.cases].append(index)
    corrected = list(rows)
    for members in families.values():
        for index, p in zip(members, holm([rows[index].p for index in members]), strict=True):
            corrected[index] = replace(rows[index], p_holm=p)
    return corrected


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of one family for each other.

    Args:
        p_values: P-values in any order, none of them nan.

    Returns:
        The smallest p times their number, the next one times one less and so on, never falling, at most 1.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
