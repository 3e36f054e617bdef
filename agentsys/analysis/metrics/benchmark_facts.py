"""Rates of a benchmark's own facts: the facts that it declares, and controls.

Nothing here knows a benchmark: records carry what their benchmark says of its facts
(agentsys.base.declared_facts). Runs without such facts have no such table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import mean

import orjson
from pydantic import ValidationError

from agentsys.analysis.metrics.rates import (
    MeasuredCell,
    MetricRow,
    metric_rows,
    number_of,
    percent,
    scored_cells,
)
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side, levels
from agentsys.analysis.statistics.outcome_grid import tallies
from agentsys.analysis.statistics.paired import compared, pair_up
from agentsys.analysis.statistics.sign_flips import SignDraws
from agentsys.base.declared_facts import ASB_FACTS, DeclaredFact
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

CONTROL_ASR = "control_asr"
"""ASR of the control: the same cases with an empty payload."""
ASR_LESS_CONTROL = "asr_less_control"
"""ASR less that of the control, on the cases that both have; in percentage points."""
IS_CONTROL = "control"
"""Fact: the payload was empty."""

_UTILITY = "utility"
"""Begins the names of facts that are further criteria for a solved user task."""


def declared(cases: Iterable[CaseRow]) -> dict[str, DeclaredFact]:
    """Collect what the benchmarks of some cases say of their facts, in the benchmarks' order.

    Cases that hold none of the facts that they declare say nothing.
    """
    found: dict[str, DeclaredFact] = {}
    for case in cases:
        if case.measured and _has_facts(case):
            for name, fact in _declarations(case).items():
                found.setdefault(name, fact)
    return found


def _declarations(case: CaseRow) -> Mapping[str, DeclaredFact]:
    return _parsed(orjson.dumps(case.facts)) if case.facts else ASB_FACTS


@lru_cache(maxsize=256)
def _parsed(facts: bytes) -> dict[str, DeclaredFact]:
    """Declarations as records hold them; one that this version cannot read is passed over."""
    found: dict[str, DeclaredFact] = {}
    for name, stored in orjson.loads(facts).items():
        try:
            known = {key: value for key, value in stored.items() if key in DeclaredFact.model_fields}
            found[name] = DeclaredFact.model_validate(known)
        except (AttributeError, ValidationError):
            continue
    return found


def metric_of(name: str, fact: DeclaredFact) -> str:
    """Name a fact's number in the long form."""
    return fact.metric or name


def measured_rows(cases: Iterable[CaseRow], *, replicates: int = 2000) -> list[MetricRow]:
    """The rates of measured facts, in the long form; cases that hold none of the facts are passed over.

    Errored cases are left out of all but the metrics whose name says that they failed.

    Returns:
        Rows sorted by cell, per suite, `overall` and `pooled`. A metric is absent unless every case of its
        cell that counts holds the fact.
    """
    listed = list(cases)
    if not any(case.measured for case in listed):
        return []
    resampler = Resampler(replicates)
    scored = scored_cells(listed)
    cells = {cell: found for cell, found in scored.items() if any(map(_has_facts, found))}
    rows: list[MetricRow] = []
    for cell in sorted(cells, key=MeasuredCell.order):
        rows += _fact_rows(cell, cells[cell], resampler)
        control = next((found for other, found in cells.items() if _is_control_of(other, found, cell)), None)
        if control is not None and cell.attack != NO_ATTACK and not is_control(cells[cell]):
            rows += _control_rows(cell, cells[cell], control, resampler)
    return rows


def is_control(cases: Iterable[CaseRow]) -> bool:
    """Tell whether cases are those of a control: some says so (an errored one cannot say)."""
    return any(case.measured.get(IS_CONTROL) is True for case in cases)


def unsolved_suites(cases: Iterable[CaseRow]) -> list[str]:
    """Suites in which no case, of any defense and by any criterion, solved its user task; sorted."""
    solved: dict[str, bool] = {}
    for case in cases:
        if case.status == "ok":
            facts = [case.measured.get(name) for name in declared([case]) if name.startswith(_UTILITY)]
            solved[case.suite] = solved.get(case.suite, False) or case.utility or any(facts)
    return sorted(suite for suite, any_solved in solved.items() if not any_solved)


def _has_facts(case: CaseRow) -> bool:
    held = case.measured
    return bool(held) and (IS_CONTROL in held or not _declarations(case).keys().isdisjoint(held))


def _is_control_of(other: MeasuredCell, cases: Iterable[CaseRow], cell: MeasuredCell) -> bool:
    return other[:4] == cell[:4] and other.attack != NO_ATTACK and is_control(cases)


def _fact_rows(cell: MeasuredCell, cases: Sequence[CaseRow], resampler: Resampler) -> Iterator[MetricRow]:
    benign = cell.attack == NO_ATTACK
    found = declared(cases)
    facts = {name: fact for name, fact in found.items() if fact.of == "all" or not benign}
    errors = sum(case.status == "error" for case in cases)
    counted = [case for case in cases if case.status == "ok"]
    for name, fact in facts.items():
        if not counted or any(case.measured.get(name) is None for case in counted):
            continue
        if fact.kind == "mean":
            yield from _mean_rows(cell, metric_of(name, fact), counted, name, errors)
        else:
            yield from _share_rows(cell, metric_of(name, fact), counted, name, errors, resampler)
    for name, fact in found.items():
        if fact.errors_failed and errors and all(case.measured.get(name) is not None for case in cases):
            whole = [replace(case, status="ok") for case in cases]
            yield from _share_rows(cell, fact.errors_failed, whole, name, errors, resampler)


def _mean_rows(
    cell: MeasuredCell, metric: str, cases: Sequence[CaseRow], fact: str, errors: int
) -> Iterator[MetricRow]:
    """Means in the fact's own unit, without intervals; nothing where some value is no number."""
    if not all(isinstance(case.measured[fact], int | float) for case in cases):
        return
    by_suite = group_by(cases, lambda case: case.suite)
    means = {suite: (_mean(by_suite[suite], fact), len(by_suite[suite])) for suite in sorted(by_suite)}
    overall = mean(value for value, _ in means.values())
    pooled = _mean(cases, fact)
    whole = {**means, OVERALL: (overall, len(cases)), POOLED: (pooled, len(cases))}
    for suite, (value, n) in whole.items():
        yield MetricRow(*cell, suite, metric, value, math.nan, math.nan, n, errors)


def _mean(cases: Iterable[CaseRow], fact: str) -> float:
    return mean(float(case.measured[fact]) for case in cases)


def _share_rows(
    cell: MeasuredCell,
    metric: str,
    cases: Sequence[CaseRow],
    fact: str,
    errors: int,
    resampler: Resampler,
) -> Iterator[MetricRow]:
    counted = [replace(case, utility=bool(case.measured[fact])) for case in cases]
    found = levels(tallies(counted, ErrorRule.REPORT), Side.SOLVED, resampler)
    yield from (replace(row, errors=errors) for row in metric_rows(cell, metric, found))


def _control_rows(
    cell: MeasuredCell, attacked: Sequence[CaseRow], control: Sequence[CaseRow], resampler: Resampler
) -> Iterator[MetricRow]:
    """The control's ASR and the difference, on the cases that both have."""
    pairing = pair_up([replace(case, attack=cell.attack) for case in control], attacked)
    if not pairing.pairs:
        return
    for suite, found in compared(pairing.pairs, Side.INJECTED, SignDraws()).items():
        less = number_of(found.difference)._replace(errors=pairing.errored)
        alone = less._replace(value=percent(found.baseline), ci_low=math.nan, ci_high=math.nan)
        yield MetricRow(*cell, suite, CONTROL_ASR, *alone)
        yield MetricRow(*cell, suite, ASR_LESS_CONTROL, *less)
