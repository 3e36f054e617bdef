"""Every side of a comparison against one of them: the long form of differences, and what flipped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Any, NamedTuple

from agentsys.analysis.metrics.cell_verdict import VALID, CellEvidence, CellVerdict, judge_cells
from agentsys.analysis.metrics.compared_sides import Axis, ComparedSides, split_sides
from agentsys.analysis.metrics.own_metric import Metric, fill_pairs_with_answers
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    METRIC_TITLES,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MeasuredCell,
    Percent,
    ScoredCells,
    make_percent,
)
from agentsys.analysis.statistics.case_outcomes import (
    Pair,
    Pairing,
    filter_exposed_pairs,
    key_cases,
    pair_up,
    split_changed_pairs,
)
from agentsys.analysis.statistics.difference_test import (
    compute_difference_interval,
    compute_p_value,
    compute_smallest_detectable,
)
from agentsys.analysis.statistics.differences import (
    SIGN_DRAWS,
    Difference,
    PairedGrid,
    SignDraws,
    make_difference_levels,
    tally_pairs,
)
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Interval, Side, Tally
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.errors import ConfigError, require_known_name, unknown_name
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.pipeline_names import NO_DEFENSE

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
        require_known_name("metric", metric, COMPARED_METRICS)
    sides = cases if isinstance(cases, ComparedSides) else split_sides(cases)
    baseline = sides.baseline if baseline is None else baseline
    _check_sides(sides, baseline)
    fields: defaultdict[MeasuredCell, dict[str, list[CaseRow]]] = defaultdict(dict)
    for side, of_side in sides.cases.items():
        for cell, some in ScoredCells(of_side).items():
            fields[sides.name_field_of(cell)].setdefault(side, []).extend(some)
    evidence = cache(lambda shared_cell, side: CellEvidence(fields[shared_cell].get(side, ())))
    keyed = cache(lambda shared_cell, side: key_cases(fields[shared_cell].get(side, ()), errors))
    pairings: dict[Contest, Pairing] = {}
    flips: list[CaseFlip] = []
    rows: list[DifferenceRow] = []
    tests = _Tests(SignDraws(draws))
    for shared_cell in sorted(fields, key=_make_field_sort_key):
        for side in sorted(fields[shared_cell].keys() - {baseline}):
            contest = Contest(sides.by, shared_cell, baseline, side)
            pairing = pair_up(keyed(shared_cell, baseline), keyed(shared_cell, side))
            pairings[contest] = pairing
            verdict = _judge_together(*(evidence(shared_cell, one) for one in (baseline, side)))
            for outcome in _list_outcomes(contest, pairing, metrics, own):
                rows += _make_rows(contest, pairing, outcome, tests, verdict)
                gained, lost = split_changed_pairs(outcome.pairs, outcome.side)
                flips += (CaseFlip(contest, outcome.metric, True, pair) for pair in gained)
                flips += (CaseFlip(contest, outcome.metric, False, pair) for pair in lost)
    alone = [field for field, of_side in fields.items() if of_side.keys() == {baseline}]
    unopposed = {field: len(fields[field][baseline]) for field in sorted(alone, key=_make_field_sort_key)}
    titles = METRIC_TITLES | {metric.name: metric.title for metric in own}
    return Comparison(
        sides.by, baseline, tuple(_correct_rows(rows)), tuple(flips), pairings, unopposed, titles, sides.notes
    )


def compare_all_with_none(cells: ScoredCells, errors: ErrorRule = ErrorRule.REPORT) -> list[DifferenceRow]:
    """Differences of all defenses from none, overall and on all cases, as `compare_sides` has them.

    Without what takes long: intervals are nan.
    """
    rows: list[DifferenceRow] = []
    # A baseline's alone are kept: what is kept of 50,000 cases is looked through by every garbage collection.
    tests, keyed = (
        _Tests(SignDraws(SIGN_DRAWS), brief=True),
        cache(lambda cell: key_cases(cells[cell], errors)),
    )
    for cell in sorted(
        cells, key=lambda cell: (*_make_field_sort_key(cell._replace(defense="")), cell.defense)
    ):
        base = cell._replace(defense=NO_DEFENSE)
        if base in cells and cell != base:
            contest = Contest(Axis.DEFENSE, cell._replace(defense=""), NO_DEFENSE, cell.defense)
            pairing = pair_up(keyed(base), key_cases(cells[cell], errors))
            verdict = _judge_together(cells.evidence[base], cells.evidence[cell])
            for outcome in _list_outcomes(contest, pairing, COMPARED_METRICS, ()):
                rows += _make_rows(contest, pairing, outcome, tests, verdict)
    return _correct_rows(rows)


def _judge_together(baseline: CellEvidence, compared: CellEvidence) -> CellVerdict:
    """The verdict on a difference: the worse of two cells', which stand beside each other alone."""
    verdicts = judge_cells({0: baseline, 1: compared}, lambda _: None)
    return reduce(CellVerdict.join, verdicts.values())


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


def _make_field_sort_key(field: MeasuredCell) -> tuple[str, str, str, str, bool, str]:
    return (*field[:4], field.attack != NO_ATTACK, field.attack)


class _Outcome(NamedTuple):
    metric: str
    pairs: tuple[Pair, ...]
    side: Side
    tallies: Callable[[str], tuple[dict[str, Tally], dict[str, Tally]]]
    """`all` or `exposed` -> counts of the baseline's cases, and of the others; counted once for all metrics."""


def _list_outcomes(
    contest: Contest, pairing: Pairing, metrics: Sequence[str], own: Sequence[Metric]
) -> Iterator[_Outcome]:
    """List what two sides can be compared in: metrics of the cases that they share, and own metrics."""

    def count(pairs: tuple[Pair, ...]) -> Callable[[str], tuple[dict[str, Tally], dict[str, Tally]]]:
        return cache(lambda which: tally_pairs(pairs if which == ALL_CASES else filter_exposed_pairs(pairs)))

    tallies = count(pairing.pairs)
    for metric in metrics if pairing.pairs else ():
        if (metric == BENIGN_UTILITY) is (contest.field.attack == NO_ATTACK):
            yield _Outcome(metric, pairing.pairs, _SIDES[metric], tallies)
    for one in own:
        if pairs := fill_pairs_with_answers(pairing.pairs, one):
            yield _Outcome(one.name, pairs, Side.SOLVED, count(pairs))


@dataclass
class _Tests:
    """Tests of differences, each made once for all that have the same cases and outcomes."""

    signs: SignDraws
    brief: bool = False
    """Whether overall differences are asked about alone, and no intervals."""
    _made: dict[Hashable, dict[str, Any]] = field(default_factory=dict)

    def test(self, difference: Difference) -> dict[str, Any]:
        """The columns of a row that a test fills."""
        key = (difference.shares, *map(_describe_grid, difference.grids))
        if key not in self._made:
            interval = Interval(math.nan, math.nan) if self.brief else compute_difference_interval(difference)
            bounds = {"ci_low": make_percent(interval.low), "ci_high": make_percent(interval.high)}
            p, least = compute_p_value(difference), make_percent(compute_smallest_detectable(difference))
            self._made[key] = {**bounds, "p": p, "p_holm": p, "smallest_detectable": least}
        return self._made[key]


def _describe_grid(grid: PairedGrid) -> Hashable:
    tasks = grid.after.suite, grid.after.user_tasks, grid.after.injection_tasks
    hits = grid.before.get_hits(grid.side), grid.after.get_hits(grid.side)
    return *tasks, *(part.tobytes() for part in (grid.after.cases, *hits))


def _make_rows(
    contest: Contest, pairing: Pairing, outcome: _Outcome, tests: _Tests, verdict: CellVerdict
) -> Iterator[DifferenceRow]:
    """Make the rows of one outcome: each level, on all cases and on exposed ones."""
    for which in (ALL_CASES,) if tests.brief else (ALL_CASES, EXPOSED):
        pairs = outcome.pairs if which == ALL_CASES else filter_exposed_pairs(outcome.pairs)
        changed = split_changed_pairs(pairs, outcome.side)
        levels = make_difference_levels(*outcome.tallies(which), outcome.side, tests.signs) if pairs else {}
        for suite, difference in levels.items():
            if tests.brief and suite != OVERALL:
                continue
            gained, lost = (
                [pair for pair in some if suite in (OVERALL, POOLED, pair.baseline.suite)] for some in changed
            )
            differing = [*gained, *lost]
            user_tasks = {(pair.baseline.suite, pair.baseline.user_task_id) for pair in differing}
            row = DifferenceRow(
                *MeasuredCell.of(pairs[0].defense),
                by=contest.by.value,
                baseline=contest.baseline,
                compared=contest.compared,
                suite=suite,
                metric=outcome.metric,
                cases=which,
                baseline_value=make_percent(difference.rate_before),
                compared_value=make_percent(difference.rate_after),
                difference=make_percent(difference.value),
                n=difference.n,
                gained=len(gained),
                lost=len(lost),
                differing_user_tasks=len(user_tasks),
                differing_injection_tasks=len(set(map(get_injection_task, differing)) - {None}),
                errored=pairing.errored,
                only_baseline=pairing.only_baseline,
                only_compared=pairing.only_defense,
                **tests.test(difference),
            )
            yield replace(row, **verdict.list_changes(_NUMBERS))


def get_injection_task(pair: Pair) -> tuple[str, str] | None:
    """Suite and injection task of a pair; None for a benign one, or an attack without a goal."""
    case = pair.baseline
    return None if case.injection_task_id is None else (case.suite, case.injection_task_id)


def _correct_rows(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Holm's correction inside each table: overall, pooled and single suites, all and exposed cases apart."""
    families: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if not math.isnan(row.p):  # An undefined test is no test.
            level = row.suite if row.suite in (OVERALL, POOLED) else "suite"
            families[level, row.cases].append(index)
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
