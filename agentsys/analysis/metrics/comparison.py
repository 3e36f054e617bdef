"""Every side of a comparison against one of them: the long form of differences, and what flipped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from operator import attrgetter
from typing import Any, NamedTuple

from agentsys.analysis.metrics.cell_verdict import BROKEN, VALID, CellEvidence, CellVerdict, judge_cells
from agentsys.analysis.metrics.compared_sides import Axis, ComparedSides, split_sides
from agentsys.analysis.metrics.own_metric import Metric, pairs_with_answers
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    METRIC_TITLES,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MeasuredCell,
    Percent,
    ScoredCells,
    number_of,
    percent,
)
from agentsys.analysis.statistics.case_pairs import (
    Pair,
    Pairing,
    changed_pairs,
    count_changes,
    exposed_pairs,
    have_same_cases,
    pair_up,
    tally_pairs,
)
from agentsys.analysis.statistics.difference_test import p_value, smallest_detectable
from agentsys.analysis.statistics.differences import (
    SIGN_DRAWS,
    PairedGrid,
    SignDraws,
    compare_pairs,
    overall_difference,
)
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Side
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_facts import NO_DEFENSE

ALL_CASES = "all"
EXPOSED = "exposed"
"""Only cases in which a tool returned the payload on both sides."""


class Contest(NamedTuple):
    """Two sides in one field."""

    by: Axis
    field: MeasuredCell
    baseline: str
    compared: str
    """The other side: a defense, model, attack or run."""

    @property
    def title(self) -> str:
        """The two sides, and where they met."""
        return f"{self.compared} against {self.baseline}, {self.field.description}"


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One difference. The fields are the columns of the long form; docs/statistics.md defines them."""

    benchmark: str
    version: str
    model: str
    """The compared side's, like `defense` and `attack`."""
    defense: str
    attack: str
    by: str
    """What the two sides differ in: `defense`, `model`, `attack` or `run`."""
    baseline: str
    """Name of the side that is compared with: a defense, model, attack or run, as `by` says."""
    compared: str
    """Name of the other side."""
    suite: str
    """A suite, `overall` or `pooled`."""
    metric: str
    cases: str
    """`all` or `exposed`."""
    baseline_value: Percent
    """On the cases that both have."""
    compared_value: Percent
    difference: Percent
    """Percentage points: the compared side's value less the baseline's."""
    ci_low: Percent
    """Percentage points; nan where undefined, like `p` and `smallest_detectable`."""
    ci_high: Percent
    p: float
    """Two-sided, of no difference."""
    p_holm: float
    """Corrected (Holm) for the other rows of the same kind of level and the same `cases`."""
    n: int
    """Cases compared."""
    gained: int
    """Cases in which the outcome occurred on the compared side alone."""
    lost: int
    """Cases in which it occurred on the baseline's side alone."""
    differing_user_tasks: int
    """User tasks with such a case."""
    differing_injection_tasks: int
    """Injection tasks with such a case."""
    smallest_detectable: Percent
    """Percentage points: the true difference that this number of cases finds with 80% power."""
    errored: int
    """Cases of all suites stored on both sides and left out, since one of them errored."""
    only_baseline: int
    """Cases of all suites that the other side lacks."""
    only_compared: int
    verdict: str = VALID
    """The worse of the two cells'; where it is `broken`, there is no number."""
    reasons: str = ""


_SIDES = {BENIGN_UTILITY: Side.SOLVED, UTILITY_UNDER_ATTACK: Side.SOLVED, TARGETED_ASR: Side.INJECTED}
COMPARED_METRICS = tuple(_SIDES)


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


def compare_sides(
    cases: ComparedSides | Iterable[CaseRow],
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
    sides = cases if isinstance(cases, ComparedSides) else split_sides(cases)
    baseline = sides.baseline if baseline is None else baseline
    _check_sides(sides, baseline)
    fields: defaultdict[MeasuredCell, dict[str, list[CaseRow]]] = defaultdict(dict)
    for side, found in sides.cases.items():
        for case in found:
            fields[sides.field_of(case)].setdefault(side, []).append(case)
    pairings = _pairings(sides, fields, baseline, errors)
    evidence = cache(lambda field, side: CellEvidence(fields[field].get(side, ())))
    signs = SignDraws(draws)
    rows: list[DifferenceRow] = []
    flips: list[CaseFlip] = []
    for contest, pairing in pairings.items():
        sides_met = (evidence(contest.field, side) for side in (contest.baseline, contest.compared))
        verdict = _judge_together(*sides_met)
        for outcome in _outcomes(contest, pairing, metrics, own, errors):
            rows += (_judge_row(row, verdict) for row in _rows(contest, outcome, pairing, signs))
            flips += _flips(contest, outcome)
    alone = [field for field, found in fields.items() if found.keys() == {baseline}]
    unopposed = {field: len(fields[field][baseline]) for field in sorted(alone, key=_field_order)}
    titles = METRIC_TITLES | {metric.name: metric.title for metric in own}
    return Comparison(
        sides.by, baseline, tuple(_correct_rows(rows)), tuple(flips), pairings, unopposed, titles, sides.notes
    )


def _judge_together(baseline: CellEvidence, compared: CellEvidence) -> CellVerdict:
    """The verdict on a difference: the worse of two cells', which stand beside each other alone."""
    verdicts = judge_cells({0: baseline, 1: compared}, lambda _: None)
    return reduce(CellVerdict.join, verdicts.values())


def overall_differences(cells: ScoredCells, errors: ErrorRule = ErrorRule.REPORT) -> list[DifferenceRow]:
    """Differences of all defenses from none, overall and on all cases, as `compare_sides` has them.

    Without what takes long: intervals and the smallest detectable differences are nan, differing tasks 0.
    """
    rows: list[DifferenceRow] = []
    tested: dict[Hashable, float] = {}
    for cell in sorted(cells, key=lambda cell: (*_field_order(cell._replace(defense="")), cell.defense)):
        base = cell._replace(defense=NO_DEFENSE)
        if base in cells and cell != base:
            verdict = _judge_together(cells.evidence[base], cells.evidence[cell])
            rows += (_judge_row(row, verdict) for row in _overall_rows(cells, base, cell, errors, tested))
    return _correct_rows(rows)


def _overall_rows(
    cells: ScoredCells,
    base: MeasuredCell,
    cell: MeasuredCell,
    errors: ErrorRule,
    tested: dict[Hashable, float],
) -> Iterator[DifferenceRow]:
    """The overall row of each metric for one defense beside none; p-values that are known are in `tested`."""
    before, after = (list(cells.tally(one, errors).values()) for one in (base, cell))
    pairing = None
    if not have_same_cases(before, after):
        pairing = pair_up(cells[base], cells[cell], errors, attrgetter("task_key"))
        before, after = (list(found.values()) for found in tally_pairs(pairing.pairs, errors))
    for metric, side in _SIDES.items() if before else ():
        if (metric == BENIGN_UTILITY) is not (cell.attack == NO_ATTACK):
            continue
        if pairing is None:
            gained, lost = count_changes(before, after, side)
        else:
            gained, lost = (len(changed_pairs(pairing.pairs, side, errors, to=to)) for to in (True, False))
        found = overall_difference(before, after, side, SignDraws())
        # Many defenses change the same cases, or none: one test tells of all that do.
        key = (base, metric, *map(_describe_grid, found.grids))
        if key not in tested:
            tested[key] = p_value(found, brief=True)
        p = tested[key]
        values: dict[str, Any] = {
            "baseline_value": percent(found.rate_before),
            "compared_value": percent(found.rate_after),
            "difference": percent(found.value),
            **dict.fromkeys(("ci_low", "ci_high", "smallest_detectable"), math.nan),
            **{"p": p, "p_holm": p, "n": found.n, "gained": gained, "lost": lost},
            **dict.fromkeys(("differing_user_tasks", "differing_injection_tasks"), 0),
            "errored": pairing.errored if pairing else 0,
            "only_baseline": pairing.only_baseline if pairing else 0,
            "only_compared": pairing.only_defense if pairing else 0,
        }
        names = (Axis.DEFENSE.value, NO_DEFENSE, cell.defense, OVERALL, metric, ALL_CASES)
        yield DifferenceRow(*cell, *names, **values)


def _describe_grid(grid: PairedGrid) -> Hashable:
    tasks = grid.counted.suite, grid.counted.user_tasks, grid.counted.injection_tasks
    return *tasks, *(part.tobytes() for part in (grid.counted.cases, grid.before, grid.after))


def _judge_row(row: DifferenceRow, verdict: CellVerdict) -> DifferenceRow:
    """The row with the verdict; where that is broken, without its numbers."""
    hidden: Any = dict.fromkeys(_NUMBERS if verdict.verdict == BROKEN else (), math.nan)
    return replace(row, **hidden, **verdict._asdict())


_NUMBERS = (
    *("baseline_value", "compared_value", "difference", "ci_low", "ci_high", "p", "p_holm"),
    "smallest_detectable",
)


def _check_sides(sides: ComparedSides, baseline: str) -> None:
    if baseline not in sides.cases:
        known = unknown_name(f"baseline, by {sides.by},", baseline, sides.cases)
        raise ConfigError(f"{known} Name one with --baseline.")
    if len(sides.cases) == 1:
        raise ConfigError(
            f"Only '{baseline}' is in these folders: add the folder of another {sides.by}'s run."
        )


def _field_order(field: MeasuredCell) -> tuple[str, str, str, str, bool, str]:
    return (*field[:4], field.attack != NO_ATTACK, field.attack)


def _pairings(
    sides: ComparedSides,
    fields: Mapping[MeasuredCell, Mapping[str, list[CaseRow]]],
    baseline: str,
    rule: ErrorRule,
) -> dict[Contest, Pairing]:
    """Pair up every side with the baseline, benign fields before attacked ones."""
    by_task = attrgetter("task_key")
    return {
        Contest(sides.by, field, baseline, side): pair_up(
            fields[field].get(baseline, []), fields[field][side], rule, by_task
        )
        for field in sorted(fields, key=_field_order)
        for side in sorted(fields[field])
        if side != baseline
    }


class _OutcomeToCompare(NamedTuple):
    """The outcome that a metric asks about, in the cases that two sides share."""

    metric: str
    pairs: tuple[Pair, ...]
    side: Side
    errors: ErrorRule


def _outcomes(
    contest: Contest, pairing: Pairing, metrics: Sequence[str], own: Sequence[Metric], errors: ErrorRule
) -> Iterator[_OutcomeToCompare]:
    for metric in metrics:
        if (metric == BENIGN_UTILITY) is (contest.field.attack == NO_ATTACK) and pairing.pairs:
            yield _OutcomeToCompare(metric, pairing.pairs, _SIDES[metric], errors)
    for one in own:
        if pairs := pairs_with_answers(pairing.pairs, one):
            yield _OutcomeToCompare(one.name, pairs, Side.SOLVED, ErrorRule.REPORT)


def _rows(
    contest: Contest, outcome: _OutcomeToCompare, pairing: Pairing, signs: SignDraws
) -> Iterator[DifferenceRow]:
    for which, pairs in ((ALL_CASES, outcome.pairs), (EXPOSED, exposed_pairs(outcome.pairs))):
        gained, lost = (changed_pairs(pairs, outcome.side, outcome.errors, to=to) for to in (True, False))
        levels = compare_pairs(pairs, outcome.side, signs, outcome.errors) if pairs else {}
        for suite, found in levels.items():
            won, gone = _in_suite(gained, suite), _in_suite(lost, suite)
            differing = [*won, *gone]
            tested, p = number_of(found), p_value(found)
            yield DifferenceRow(
                *MeasuredCell.of(pairing.pairs[0].defense),
                by=contest.by.value,
                baseline=contest.baseline,
                compared=contest.compared,
                suite=suite,
                metric=outcome.metric,
                cases=which,
                baseline_value=percent(found.rate_before),
                compared_value=percent(found.rate_after),
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
                differing_injection_tasks=len(set(map(injection_task_of, differing)) - {None}),
                smallest_detectable=percent(smallest_detectable(found)),
                errored=pairing.errored,
                only_baseline=pairing.only_baseline,
                only_compared=pairing.only_defense,
            )


def _in_suite(pairs: Iterable[Pair], suite: str) -> list[Pair]:
    return [pair for pair in pairs if suite in (OVERALL, POOLED, pair.baseline.suite)]


def injection_task_of(pair: Pair) -> tuple[str, str] | None:
    """Suite and injection task of a pair; None for a benign one, or an attack without a goal."""
    case = pair.baseline
    return None if case.injection_task_id is None else (case.suite, case.injection_task_id)


def _flips(contest: Contest, outcome: _OutcomeToCompare) -> Iterator[CaseFlip]:
    for gained in (True, False):
        for pair in changed_pairs(outcome.pairs, outcome.side, outcome.errors, to=gained):
            yield CaseFlip(contest, outcome.metric, gained, pair)


def _correct_rows(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Holm's correction inside each table: overall, pooled and single suites, all and exposed cases apart."""

    def family(index: int) -> tuple[str, str]:
        row = rows[index]
        return row.suite if row.suite in (OVERALL, POOLED) else "suite", row.cases

    # An undefined test is no test.
    families = group_by((index for index, row in enumerate(rows) if not math.isnan(row.p)), family)
    corrected = list(rows)
    for members in families.values():
        for index, p in zip(members, correct_by_holm([rows[index].p for index in members]), strict=True):
            corrected[index] = replace(rows[index], p_holm=p)
    return corrected


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
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
