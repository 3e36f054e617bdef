"""Rates of cases in the long form, one row per cell, suite and metric, in percent with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, NamedTuple

import numpy as np

from agentsys.analysis.metrics.cell_verdict import VALID, CellEvidence, CellVerdict, judge_cells
from agentsys.analysis.metrics.own_metric import PERCENT as PERCENT
from agentsys.analysis.metrics.own_metric import Metric, count_answers
from agentsys.analysis.statistics.difference_test import compute_difference_interval
from agentsys.analysis.statistics.differences import Difference
from agentsys.analysis.statistics.outcome_grid import (
    Bounds,
    ErrorRule,
    Interval,
    Resampler,
    Side,
    Tally,
    make_spread,
    scale_spread,
    tally_suites,
    widen_tally,
)
from agentsys.analysis.statistics.rate_estimates import (
    OVERALL,
    POOLED,
    UNDEFINED,
    UPPER,
    Estimate,
    bound_rate_levels,
    compute_defense_quality,
    compute_proportion_interval,
    estimate_rate_levels,
)
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.pipeline_names import NO_DEFENSE

BENIGN_UTILITY = "benign_utility"
UTILITY_UNDER_ATTACK = "utility_under_attack"
TARGETED_ASR = "targeted_asr"
DEFENSE_QUALITY = "defense_quality"
METRIC_TITLES = {
    BENIGN_UTILITY: "Benign utility",
    UTILITY_UNDER_ATTACK: "Utility under attack",
    TARGETED_ASR: "Targeted ASR",
    DEFENSE_QUALITY: "Defense quality",
}
"""Metric -> heading, in the order shown."""
NET_RESILIENCE = "net_resilience"
"""Utility under attack x (1 - targeted ASR), MSB's NRP: of attacks on the surface of tools, where it is published."""
NRP_TITLE = "NRP"
TOOL_SURFACE_PREFIX = "mcp_"
"""Begins the names of these attacks, which write into no tool's result of the suite."""
METRICS = tuple(METRIC_TITLES)
Percent = Annotated[float, PERCENT]
"""Percent, or percentage points, as tables show them; data for programs hold the fraction, in a column that
says so (agentsys.analysis.tables.table_document)."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """The columns with which every long form of cells begins."""

    benchmark: str
    version: str
    model: str
    """As `shown_model` has it: it says so where a simulated model was behind the cases."""
    defense: str
    attack: str
    """`none` for the benign utility."""
    suite: str
    """A suite, `overall` (the unweighted mean of the suites) or `pooled` (all cases together)."""


@dataclass(frozen=True, slots=True)
class MetricRow(CellRow):
    """One number. The fields are the columns of the long form."""

    metric: str
    value: Percent
    """nan where undefined, and of a fact that is a mean."""
    ci_low: Percent
    """Lower end of the 95% interval; nan where undefined."""
    ci_high: Percent
    n: int
    """Cases the value rests on (for the defense quality: benign and attacked ones)."""
    errors: int
    """Errored cases of this cell, whether the rule in force counts them or not."""
    verdict: str = VALID
    """Of the cell: `valid`, `suspect` or `broken`; a broken one's value and interval are nan."""
    reasons: str = ""
    """Why, the gravest reason first; see agentsys.analysis.metrics.cell_verdict."""
    mean: float | None = None
    """Of a fact that is a mean: the mean, in its own unit; None of a rate."""
    bound_low: Percent = math.nan
    """The value if every undecided case (`case_outcomes.list_doubts`) speaks against it; nan: not known."""
    bound_high: Percent = math.nan
    """The value if every one speaks for it."""
    undecided: int = 0
    """Undecided cases, in the value or not."""


class Number(NamedTuple):
    """One measured value, wherever it is shown."""

    value: float
    """Percent; nan where undefined."""
    ci_low: float
    """Percent: lower end of the 95% interval; nan where undefined."""
    ci_high: float
    n: int
    """Cases it rests on."""
    errors: int = 0
    """Errored cases among those that were to be counted."""
    verdict: str = VALID
    """Of its cell, and why; see `MetricRow`."""
    reasons: str = ""

    def judge(self, verdict: CellVerdict) -> Number:
        """The number under its cell's verdict: none where that is broken."""
        return self._replace(**verdict.list_changes(("value", "ci_low", "ci_high")))


class MeasuredCell(NamedTuple):
    """The cell of a plan that a row of a table is about; the model's name is the marked one."""

    benchmark: str
    version: str
    model: str
    defense: str
    attack: str

    @classmethod
    def of(cls, case: CaseRow) -> MeasuredCell:
        """Name the cell that a case belongs to."""
        return cls(case.benchmark, case.version, case.table_model, case.defense, case.attack)

    @property
    def description(self) -> str:
        """The cell in words, as far as it is named: its attack first, its benchmark last."""
        attack = "no attack" if self.attack == NO_ATTACK else self.attack
        named = [name for name in (attack, self.defense, self.model) if name]
        return f"{', '.join(named)} on {self.benchmark} {self.version}"

    def make_sort_key(self) -> tuple[str, str, str, bool, str, bool, str]:
        """Key to sort cells by: `none` before other defenses, and before attacks."""
        return (*self[:3], self.defense != NO_DEFENSE, self.defense, self.attack != NO_ATTACK, self.attack)


Verdicts = Mapping[MeasuredCell, CellVerdict]
_CELL_FIELDS = attrgetter("benchmark", "version", "model", "apart", "simulated", "defense", "attack")
"""What the name of a case's cell is made of."""


class ScoredCells(dict[MeasuredCell, list[CaseRow]]):
    """Cell -> those of its cases that metrics are made of; cells and cases in the order met.

    What several tables and notes need of the cells is worked out once.
    """

    def __init__(self, cases: Iterable[CaseRow]) -> None:
        self.cases = [case for case in cases if case.is_scored]
        """All of them, in the order met."""
        # By plain fields first: a cell made for each of 50,000 cases takes as long as reading their index.
        alike = group_by(self.cases, _CELL_FIELDS)
        cells = {MeasuredCell.of(group[0]): group for group in alike.values()}
        super().__init__(cells if len(cells) == len(alike) else group_by(self.cases, MeasuredCell.of))
        self._tallies: dict[tuple[MeasuredCell, ErrorRule], dict[str, Tally]] = {}

    @cached_property
    def evidence(self) -> dict[MeasuredCell, CellEvidence]:
        """Collect the reasons to doubt each cell's numbers."""
        return {cell: CellEvidence(cases) for cell, cases in self.items()}

    @cached_property
    def verdicts(self) -> Verdicts:
        """The cells' verdicts; those of one model under one attack stand beside each other."""
        return judge_cells(self.evidence, lambda cell: (*cell[:3], cell.attack))

    def tally_cell(self, cell: MeasuredCell, rule: ErrorRule) -> dict[str, Tally]:
        """Count a cell's cases by suite; of a cell that is not here there are none."""
        if (cell, rule) not in self._tallies:
            self._tallies[cell, rule] = tally_suites(self.get(cell, ()), rule)
        return self._tallies[cell, rule]


def measure(
    cases: Iterable[CaseRow] | ScoredCells,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    brief: bool = False,
) -> list[MetricRow]:
    """Measure all metrics of all cells, per suite, overall and pooled.

    Args:
        cases: Cases in any order; the result does not depend on it. Injection tasks run as user tasks are
            left out. Epochs are cases like any others.
        errors: What errored cases count as.
        own: Further metrics, of the user's own; errored cases are in none of them, whatever the rule.
        brief: Whether intervals are wanted of `overall` alone: all others take longer and are nan.

    Returns:
        Rows sorted by cell (`none` before other defenses), then metric, then suite, with `overall` and
        `pooled` last. A metric is absent where the folder has no case of its kind, and nan where it
        has some and none can be counted.

    Benign utility: share of user tasks solved with no attack; utility under
    attack, targeted ASR: shares of (user task, injection task) cases.
    """
    resampler, cells = Resampler(), cases if isinstance(cases, ScoredCells) else ScoredCells(cases)
    rows: list[MetricRow] = []
    for cell in sorted(cells, key=MeasuredCell.make_sort_key):
        counted, pooled = cells.tally_cell(cell, errors), not brief
        solved = estimate_rate_levels(counted, Side.SOLVED, resampler, pooled=pooled)
        bounds = {side: bound_rate_levels(counted, side) for side in Side}
        if cell.attack == NO_ATTACK:
            rows += make_metric_rows(cell, BENIGN_UTILITY, solved, brief=brief, bounds=bounds[Side.SOLVED])
        else:
            asr = estimate_rate_levels(counted, Side.INJECTED, resampler, pooled=pooled)
            benign = cells.tally_cell(cell._replace(attack=NO_ATTACK), errors)
            quality = _estimate_qualities(benign, counted, asr, resampler, pooled=pooled)
            estimates = {UTILITY_UNDER_ATTACK: solved, TARGETED_ASR: asr, DEFENSE_QUALITY: quality}
            limits = {UTILITY_UNDER_ATTACK: bounds[Side.SOLVED], TARGETED_ASR: bounds[Side.INJECTED]}
            shared = {suite: benign[suite] for suite in counted if suite in benign}
            utility = bound_rate_levels(shared, Side.SOLVED) if shared else {}
            if len(shared) < len(counted):  # then all suites together have no defense quality
                utility = {suite: rate for suite, rate in utility.items() if suite in shared}
            limits[DEFENSE_QUALITY] = _bound_products(utility, bounds[Side.INJECTED])
            limits[NET_RESILIENCE] = _bound_products(bounds[Side.SOLVED], bounds[Side.INJECTED])
            if cell.attack.startswith(TOOL_SURFACE_PREFIX) and not brief:
                estimates[NET_RESILIENCE] = _estimate_net_resilience(solved, asr, counted)
            for metric, rates in estimates.items():
                rows += make_metric_rows(cell, metric, rates, brief=brief, bounds=limits[metric])
        for metric_of_users in own:
            if answers := tally_suites(count_answers(cells[cell], metric_of_users), ErrorRule.REPORT):
                rates = estimate_rate_levels(answers, Side.SOLVED, resampler)
                rows += make_metric_rows(cell, metric_of_users.name, rates, brief=brief)
    return apply_verdicts(rows, cells.verdicts)


def apply_verdicts(rows: Iterable[MetricRow], verdicts: Verdicts) -> list[MetricRow]:
    """Put the cells' verdicts into rows; there is no number of a broken cell."""
    judged = []
    for row in rows:
        cell = MeasuredCell(row.benchmark, row.version, row.model, row.defense, row.attack)
        verdict = verdicts.get(cell, CellVerdict())
        if row.metric == DEFENSE_QUALITY:
            verdict = verdict.join(verdicts.get(cell._replace(attack=NO_ATTACK), CellVerdict()))
        judged.append(row if verdict.verdict == VALID else replace(row, **verdict.list_changes(_NUMBERS)))
    return judged


_NUMBERS = ("value", "ci_low", "ci_high", "bound_low", "bound_high")
"""Fields of a row that a broken cell has not."""


def _bound_products(utility: Mapping[str, Bounds], asr: Mapping[str, Bounds]) -> dict[str, Bounds]:
    """Bounds of utility x (1 - ASR) at each level that has both."""
    return {
        level: Bounds(
            utility[level].low * (1 - rate.high),
            utility[level].high * (1 - rate.low),
            utility[level].undecided + rate.undecided,
        )
        for level, rate in asr.items()
        if level in utility
    }


def _estimate_qualities(
    benign: Mapping[str, Tally],
    attacked: Mapping[str, Tally],
    plain: Mapping[str, Estimate],
    resampler: Resampler,
    *,
    pooled: bool,
) -> dict[str, Estimate]:
    """Defense quality over the attack's suites; both of its rates draw the same user tasks.

    Without an interval where one of the rates by itself (`plain`: the ASR) has none.
    """
    solved, hijacked = dict[str, Tally](), dict(attacked)
    for suite in attacked.keys() & benign.keys():
        tasks = tuple(sorted({*benign[suite].user_tasks, *attacked[suite].user_tasks}))
        solved[suite], hijacked[suite] = (widen_tally(one[suite], tasks) for one in (benign, attacked))
    utility = dict[str, Estimate]()
    if solved:
        utility = estimate_rate_levels(dict(sorted(solved.items())), Side.SOLVED, resampler, pooled=pooled)
    if len(solved) < len(attacked):
        # A suite without benign cases has no defense quality, and then neither have all suites together.
        utility = {suite: rate for suite, rate in utility.items() if suite in solved}
    asr = estimate_rate_levels(hijacked, Side.INJECTED, resampler, pooled=pooled)
    own = {suite: benign[suite] for suite in sorted(solved)}
    alone = estimate_rate_levels(own, Side.SOLVED, resampler, pooled=pooled) if own else {}
    qualities = {}
    for level, rate in asr.items():
        quality = compute_defense_quality(utility.get(level, UNDEFINED), rate)
        both = plain[level], alone.get(level, UNDEFINED)
        lacks = any(np.isnan(one.draws).all() for one in both)
        qualities[level] = replace(quality, draws=UNDEFINED.draws) if lacks else quality
    return qualities


def _estimate_net_resilience(
    utility: Mapping[str, Estimate], asr: Mapping[str, Estimate], counted: Mapping[str, Tally]
) -> dict[str, Estimate]:
    """The product of two rates of the same cases, at each level; both draw the same tasks."""
    cases = sum(one.n for one in counted.values())
    products = {}
    for level, injected in asr.items():
        solved, product, spreads = utility[level], compute_defense_quality(utility[level], injected), []
        parts = [one for suite, one in counted.items() if level in (suite, OVERALL, POOLED)]
        for one in parts if len(injected.spreads) == len(parts) else ():  # else suites are drawn
            # How one more case of either outcome moves the product.
            grid = (1 - injected.value) * one.solved - solved.value * one.hijacked
            share = one.n / cases if level == POOLED else 1 / len(parts)
            spreads.append(scale_spread(make_spread(grid, one), share))
        whole = tuple(spreads) or product.spreads
        products[level] = replace(product, n=solved.n, errors=solved.errors, spreads=whole)
    return products


def make_metric_rows(
    cell: MeasuredCell,
    metric: str,
    levels: Mapping[str, Estimate | Difference],
    *,
    brief: bool = False,
    bounds: Mapping[str, Bounds] | None = None,
) -> Iterator[MetricRow]:
    """Rows of one metric of one cell.

    Args:
        cell: Which cell.
        metric: Which metric.
        levels: Level (a suite, `overall`, `pooled`) -> rate or difference.
        brief: Whether intervals are left out of all levels but `overall`.
        bounds: Level -> the bounds of the rate, as far as they are known.
    """
    for suite, estimate in levels.items():
        number = make_number(estimate, whole=suite == OVERALL or not brief)
        row = MetricRow(*cell, suite, metric, **number._asdict())
        if (known := (bounds or {}).get(suite)) is not None:
            low, high = make_percent(known.low), make_percent(known.high)
            row = replace(row, bound_low=low, bound_high=high, undecided=known.undecided)
        yield row


def make_percent(proportion: float) -> float:
    """A proportion in percent, rounded where floating point has nothing more to say: 1/3 x 3 is 100."""
    return round(100.0 * proportion, 9)


def make_number(estimate: Estimate | Difference, upper: float = UPPER, *, whole: bool = True) -> Number:
    """A proportion, or a difference of two, -> percent (percentage points) with the interval.

    Args:
        estimate: The proportion or difference.
        upper: Quantile of the upper bound of a proportion.
        whole: Whether the interval is wanted, which takes far longer than the rest.
    """
    interval = Interval(math.nan, math.nan)
    if whole:
        interval = (
            compute_difference_interval(estimate)
            if isinstance(estimate, Difference)
            else compute_proportion_interval(estimate, upper)
        )
    bounds = make_percent(interval.low), make_percent(interval.high)
    return Number(make_percent(estimate.value), *bounds, estimate.n, estimate.errors)


def read_number(row: MetricRow) -> Number:
    """The number of a row of the long form."""
    return Number(*(getattr(row, name) for name in Number._fields))
