"""Cases -> the long form: one row per cell, suite and metric, in percent, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import NamedTuple

from agentsys.analysis.metrics.own_metric import Metric, answered
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.difference import Difference
from agentsys.analysis.statistics.difference_test import difference_interval
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import (
    OVERALL,
    POOLED,
    Estimate,
    Side,
    defense_quality,
    levels,
    undefined,
)
from agentsys.analysis.statistics.intervals import UPPER, proportion_interval
from agentsys.analysis.statistics.outcome_grid import Tally, tallies
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow, format_table_model
from agentsys.records.published_facts import NO_DEFENSE

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
METRICS = tuple(METRIC_TITLES)

CHOSEN_AMONG = "chosen_among"
"""In `CaseRow.measured`: the number of attacks that a case's attack was chosen among for its rate."""


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
    value: float
    """Percent (of a fact that is a mean: its own unit); nan where undefined."""
    ci_low: float
    """Percent: lower end of the 95% interval; nan where undefined."""
    ci_high: float
    n: int
    """Cases the value rests on (for the defense quality: benign and attacked ones)."""
    errors: int
    """Errored cases of this cell, whether the rule in force counts them or not."""


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
        return _cell(*_fields(case))

    @property
    def place(self) -> str:
        """The cell in words, as far as it is named: its attack first, its benchmark last."""
        attack = "no attack" if self.attack == NO_ATTACK else self.attack
        named = [name for name in (attack, self.defense, self.model) if name]
        return f"{', '.join(named)} on {self.benchmark} {self.version}"

    def order(self) -> tuple[str, str, str, bool, str, bool, str]:
        """What cells are sorted by: `none` before other defenses, and before attacks."""
        return (*self[:3], self.defense != NO_DEFENSE, self.defense, self.attack != NO_ATTACK, self.attack)


_fields = attrgetter("benchmark", "version", "model", "apart", "simulated", "defense", "attack")


@lru_cache(maxsize=4096)
def _cell(
    benchmark: str, version: str, model: str, apart: str | None, simulated: bool, defense: str, attack: str
) -> MeasuredCell:
    """Make each cell once, however many cases it has."""
    return MeasuredCell(benchmark, version, format_table_model(model, apart, simulated), defense, attack)


def scored_cells(cases: Iterable[CaseRow]) -> dict[MeasuredCell, list[CaseRow]]:
    """Cell -> those of its cases that metrics are made of; cells and cases in the order met."""
    return in_cells([case for case in cases if case.is_scored])


def in_cells(cases: Sequence[CaseRow]) -> dict[MeasuredCell, list[CaseRow]]:
    """Cell -> its cases; cells and cases in the order met."""
    alike = group_by(cases, _fields)
    cells = {_cell(*fields): found for fields, found in alike.items()}
    return cells if len(cells) == len(alike) else group_by(cases, MeasuredCell.of)


def measure(
    cases: Iterable[CaseRow],
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    replicates: int = 2000,
) -> list[MetricRow]:
    """Measure all metrics of all cells, per suite, overall and pooled.

    Args:
        cases: Cases in any order; the result does not depend on it. Injection tasks run as user tasks are
            left out. Epochs are cases like any others.
        errors: What errored cases count as.
        own: Further metrics, of the user's own; errored cases are in none of them, whatever the rule.
        replicates: Number of bootstrap replicates; see `agentsys.analysis.statistics.bootstrap`.

    Returns:
        Rows sorted by cell (`none` before other defenses), then metric, then suite, with `overall` and
        `pooled` last. A metric is absent where the folder has no case of its kind, and nan where it
        has some and none can be counted.

    Benign utility: share of user tasks solved with no attack; utility under
    attack, targeted ASR: shares of (user task, injection task) cases.
    """
    resampler = Resampler(replicates)
    rows: list[MetricRow] = []
    cells = scored_cells(cases)
    defended = group_by(cells, lambda cell: cell._replace(attack=NO_ATTACK))
    for cell in sorted(defended, key=MeasuredCell.order):
        by_attack = {one.attack: cells[one] for one in defended[cell]}
        found = {attack: tallies(group, errors) for attack, group in by_attack.items()}
        benign = _Rates(found.pop(NO_ATTACK, {}), Side.SOLVED, resampler)
        if benign.of:
            rows += metric_rows(cell, BENIGN_UTILITY, benign.own)
            rows += _own_rows(cell, by_attack[NO_ATTACK], own, resampler)
        for attack in sorted(found):
            attacked, upper = cell._replace(attack=attack), upper_for(by_attack[attack])
            rows += _attack_rows(attacked, benign, found[attack], resampler, upper)
            rows += _own_rows(attacked, by_attack[attack], own, resampler)
    return rows


@dataclass(frozen=True)
class _Rates:
    """The rates of some cases, each made once however many metrics are made of it."""

    of: Mapping[str, Tally]
    side: Side
    resampler: Resampler

    @cached_property
    def own(self) -> dict[str, Estimate]:
        """Level -> rate, where the user tasks drawn from are the cases' own."""
        return levels(self.of, self.side, self.resampler)

    def over(self, frames: Mapping[str, tuple[str, ...]], suites: Mapping[str, Tally]) -> dict[str, Estimate]:
        """The rates in some of the suites, where the user tasks drawn from are given (`resampled_total`)."""
        if len(suites) == len(self.of) and all(
            frames.get(name, counted.user_tasks) == counted.user_tasks for name, counted in suites.items()
        ):
            return dict(self.own)
        return levels(suites, self.side, self.resampler, frames)


def _attack_rows(
    cell: MeasuredCell, benign: _Rates, attacked: Mapping[str, Tally], resampler: Resampler, upper: float
) -> Iterator[MetricRow]:
    asr = _Rates(attacked, Side.INJECTED, resampler)
    yield from metric_rows(cell, UTILITY_UNDER_ATTACK, levels(attacked, Side.SOLVED, resampler), upper)
    yield from metric_rows(cell, TARGETED_ASR, asr.own, upper)
    yield from metric_rows(cell, DEFENSE_QUALITY, _qualities(benign, asr, resampler), upper)


def upper_for(cases: Iterable[CaseRow]) -> float:
    """Where the upper bound of the cases' rate stands among the quantiles: 97.5%, more for a chosen attack.

    An attack that was chosen among n for its rate has the interval that each of the n would need so that all
    hold together (Bonferroni).
    """
    among = max((int(case.measured.get(CHOSEN_AMONG, 1)) for case in cases), default=1)
    return 1 - (1 - UPPER) / among


def _own_rows(
    cell: MeasuredCell, cases: Sequence[CaseRow], own: Sequence[Metric], resampler: Resampler
) -> Iterator[MetricRow]:
    """Rows of the user's own metrics; none of one that has no answer for any case."""
    for metric in own:
        if counted := tallies(answered(cases, metric), ErrorRule.REPORT):
            yield from metric_rows(cell, metric.name, levels(counted, Side.SOLVED, resampler))


def _qualities(benign: _Rates, attacked: _Rates, resampler: Resampler) -> dict[str, Estimate]:
    """Defense quality over the attack's suites; both of its rates draw the same user tasks."""
    frames = {
        suite: tuple(sorted({*counted.user_tasks, *benign.of[suite].user_tasks}))
        for suite, counted in attacked.of.items()
        if suite in benign.of
    }
    asr = attacked.over(frames, attacked.of)
    shared = {suite: benign.of[suite] for suite in frames}
    utility = benign.over(frames, shared) if shared else {}
    if len(frames) < len(attacked.of):
        # A suite without benign cases has no defense quality, and then neither have all suites together.
        for level in (OVERALL, POOLED):
            utility.pop(level, None)
    nothing = undefined(resampler.replicates)
    return {level: defense_quality(utility.get(level, nothing), asr[level]) for level in asr}


def metric_rows(
    cell: MeasuredCell, metric: str, found: Mapping[str, Estimate | Difference], upper: float = UPPER
) -> Iterator[MetricRow]:
    """Rows of one metric of one cell.

    Args:
        cell: Which cell.
        metric: Which metric.
        found: Level (a suite, `overall`, `pooled`) -> rate or difference.
        upper: See `upper_for`.
    """
    for suite, estimate in found.items():
        yield MetricRow(*cell, suite, metric, *number_of(estimate, upper))


def percent(proportion: float) -> float:
    """A proportion in percent, rounded where floating point has nothing more to say: 1/3 x 3 is 100."""
    return round(100.0 * proportion, 9)


def number_of(found: Estimate | Difference, upper: float = UPPER) -> Number:
    """A proportion, or a difference of two, -> percent (percentage points) with the interval."""
    if isinstance(found, Difference):
        interval = difference_interval(found)
    else:
        interval = proportion_interval(found, upper)
    bounds = percent(interval.low), percent(interval.high)
    return Number(percent(found.value), *bounds, found.n, found.errors)


def number_in(row: MetricRow) -> Number:
    """The number of a row of the long form."""
    return Number(row.value, row.ci_low, row.ci_high, row.n, row.errors)
