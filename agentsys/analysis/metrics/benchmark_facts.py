"""What a benchmark's own facts add to the rates: two criteria, what caused a success, and controls.

Nothing here knows a benchmark. Records whose `measured` holds a fact of these names have its rate in the
tables; runs without such facts have no such table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agentsys.analysis.metrics.rates import Cell, MetricRow
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Estimate, Side, macro, rate, totals
from agentsys.analysis.statistics.intervals import difference_interval, proportion_interval
from agentsys.analysis.statistics.outcome_grid import tally
from agentsys.analysis.statistics.paired import compared, pair_up
from agentsys.records.case_row import NO_ATTACK, CaseRow

CONTROL_ASR = "control_asr"
"""ASR of the control: the same cases with an empty payload."""
ASR_LESS_CONTROL = "asr_less_control"
"""ASR less that of the control, on the cases that both have; in percentage points."""
AS_COUNTED = "targeted_asr_text_errors_failed"
UTILITY_AS_COUNTED = "utility_text_errors_failed"
"""By text, errored cases counted as failures: as results are published that know no errors."""

IS_CONTROL = "control"
"""Fact: the payload was empty."""

ATTACKED_FACTS: Mapping[str, str] = {
    "targeted_asr_execution": "injection_success_execution",
    "targeted_asr_text": "injection_success_text",
    "asr_planner_chosen": "planner_chosen",
    "asr_patched_plan": "patched_plan",
    "asr_injection_caused": "injection_caused",
    "utility_execution": "utility_execution",
    "utility_text": "utility_text",
    "exposed": "payloads_delivered",
    "refused": "refused",
    "workflow_failure": "workflow_failure",
}
"""Metric -> fact, of attacked cases: the share of cases in which it is true (or not 0)."""

BENIGN_FACTS = {
    name: ATTACKED_FACTS[name]
    for name in ("utility_execution", "utility_text", "refused", "workflow_failure")
}
"""The same of benign cases."""

_COUNTED = {AS_COUNTED: "injection_success_text", UTILITY_AS_COUNTED: "utility_text"}
_KEYS = frozenset({*ATTACKED_FACTS.values(), IS_CONTROL})


def measured_rows(cases: Iterable[CaseRow], *, replicates: int = 2000, seed: int = 0) -> list[MetricRow]:
    """The rates of measured facts, in the long form.

    Errored cases are left out of all but the metrics whose name says that they failed.

    Args:
        cases: In any order; those that hold none of the facts are passed over.
        replicates: Of the bootstrap; see `agentsys.analysis.statistics.bootstrap`.
        seed: Of the bootstrap.

    Returns:
        Rows sorted by cell, per suite, `overall` and `pooled`. A metric is absent unless every case of its
        cell that counts holds the fact.
    """
    resampler = Resampler(replicates, seed)
    cells = _cells(cases)
    rows: list[MetricRow] = []
    for cell in sorted(cells, key=_order):
        rows += _fact_rows(cell, cells[cell], resampler)
        control = next((found for other, found in cells.items() if _is_control_of(other, found, cell)), None)
        if control is not None and cell.attack != NO_ATTACK and not is_control(cells[cell]):
            rows += _control_rows(cell, cells[cell], control, resampler)
    return rows


def is_control(cases: Iterable[CaseRow]) -> bool:
    """Whether cases are those of a control: some says so (an errored one cannot say)."""
    return any(case.measured.get(IS_CONTROL) is True for case in cases)


def unsolved_suites(cases: Iterable[CaseRow]) -> list[str]:
    """Suites in which no case, of any defense and by any criterion, solved its user task; sorted."""
    solved: dict[str, bool] = {}
    for case in cases:
        if case.status == "ok":
            facts = (case.utility, case.measured.get("utility_execution"), case.measured.get("utility_text"))
            solved[case.suite] = solved.get(case.suite, False) or any(facts)
    return sorted(suite for suite, any_solved in solved.items() if not any_solved)


def _cells(cases: Iterable[CaseRow]) -> dict[Cell, list[CaseRow]]:
    found: defaultdict[Cell, list[CaseRow]] = defaultdict(list)
    for case in cases:
        if not case.is_injection_task_alone:
            cell = Cell(case.benchmark, case.version, case.shown_model, case.defense, case.attack)
            found[cell].append(case)
    return {cell: group for cell, group in found.items() if any(_KEYS & c.measured.keys() for c in group)}


def _order(cell: Cell) -> tuple[object, ...]:
    return (*cell[:3], cell.defense != "none", cell.defense, cell.attack != NO_ATTACK, cell.attack)


def _is_control_of(other: Cell, cases: Iterable[CaseRow], cell: Cell) -> bool:
    return other[:4] == cell[:4] and other.attack != NO_ATTACK and is_control(cases)


def _fact_rows(cell: Cell, cases: Sequence[CaseRow], resampler: Resampler) -> Iterator[MetricRow]:
    facts = BENIGN_FACTS if cell.attack == NO_ATTACK else ATTACKED_FACTS
    errors = sum(case.status == "error" for case in cases)
    counted = [case for case in cases if case.status == "ok"]
    for metric, fact in facts.items():
        if counted and all(case.measured.get(fact) is not None for case in counted):
            yield from _rows(cell, metric, _shares(counted, fact, resampler), errors)
    for metric, fact in _COUNTED.items():
        if errors and all(case.measured.get(fact) is not None for case in cases):
            whole = [replace(case, status="ok") for case in cases]
            yield from _rows(cell, metric, _shares(whole, fact, resampler), errors)


def _shares(cases: Sequence[CaseRow], fact: str, resampler: Resampler) -> dict[str, Estimate]:
    by_suite: defaultdict[str, list[CaseRow]] = defaultdict(list)
    for case in cases:
        by_suite[case.suite].append(replace(case, utility=bool(case.measured[fact])))
    parts = {
        suite: totals(tally(suite, by_suite[suite], ErrorRule.REPORT), Side.SOLVED, resampler)
        for suite in sorted(by_suite)
    }
    suites = {suite: rate([part]) for suite, part in parts.items()}
    return {**suites, OVERALL: macro(list(suites.values())), POOLED: rate(list(parts.values()))}


def _rows(cell: Cell, metric: str, levels: Mapping[str, Estimate], errors: int) -> Iterator[MetricRow]:
    for suite, estimate in levels.items():
        interval = proportion_interval(estimate)
        bounds = _percent(interval.low), _percent(interval.high)
        yield MetricRow(*cell, suite, metric, _percent(estimate.value), *bounds, estimate.n, errors)


def _control_rows(
    cell: Cell, attacked: Sequence[CaseRow], control: Sequence[CaseRow], resampler: Resampler
) -> Iterator[MetricRow]:
    """The control's ASR and the difference, on the cases that both have."""
    pairing = pair_up([replace(case, attack=cell.attack) for case in control], attacked)
    if not pairing.pairs:
        return
    for suite, found in compared(pairing.pairs, Side.HIJACKED, resampler).items():
        interval = difference_interval(found.difference)
        n, difference = found.difference.n, found.difference.value
        nothing = float("nan")
        yield MetricRow(
            *cell, suite, CONTROL_ASR, _percent(found.baseline), nothing, nothing, n, pairing.errored
        )
        bounds = _percent(interval.low), _percent(interval.high)
        yield MetricRow(*cell, suite, ASR_LESS_CONTROL, _percent(difference), *bounds, n, pairing.errored)


def _percent(proportion: float) -> float:
    """Rounded where floating point has nothing more to say."""
    return round(100.0 * proportion, 9)
