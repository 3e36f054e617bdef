"""The rates of measured facts as grids, and what has to be said below them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentsys.analysis.metrics.benchmark_facts import (
    ASR_LESS_CONTROL,
    CONTROL_ASR,
    declared,
    is_control,
    metric_of,
    unsolved_suites,
)
from agentsys.analysis.metrics.rates import MetricRow
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import Grid, GridCell, cells, difference_cell, number_cell
from agentsys.analysis.tables.results_layout import Sheet
from agentsys.base.declared_facts import DeclaredFact
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

_COLUMNS_OF_CONTROLS = {CONTROL_ASR: "Control", ASR_LESS_CONTROL: "ASR - control"}
_MEAN = " (mean)"
_ABSENT = "—"
_Numbers = Mapping[tuple[str, str], Mapping[str, MetricRow]]
"""(defense, attack) -> metric -> overall number."""


@dataclass(frozen=True)
class FactGrid:
    """One table of measured facts."""

    benchmark: str
    caption: str
    columns: Mapping[str, str]
    """Metric -> title, in order."""
    errors_failed: frozenset[str]
    """The metrics among them that count errored cases too."""
    attacked: bool
    """Whether it shows attacked cells alone."""


def fact_grids(cases: Iterable[CaseRow]) -> list[FactGrid]:
    """The tables that the benchmarks of some cases declare.

    The number that counts errors as failures stands behind its fact; controls stand at the end of the
    table whose facts are read against them.
    """
    by_benchmark = group_by(cases, lambda case: case.benchmark)
    facts = [(place, *fact) for place, some in by_benchmark.items() for fact in declared(some).items()]
    by_grid = group_by(facts, lambda one: (one[0], one[2].grid))
    return [_fact_grid(*place, {name: fact for _, name, fact in some}) for place, some in by_grid.items()]


def _fact_grid(benchmark: str, caption: str, facts: Mapping[str, DeclaredFact]) -> FactGrid:
    columns: dict[str, str] = {}
    for name, fact in facts.items():
        columns[metric_of(name, fact)] = f"{fact.title}{_MEAN}" if fact.kind == "mean" else fact.title
        if fact.errors_failed:
            columns[fact.errors_failed] = f"{fact.title}, errors failed"
    if any(fact.wants_control for fact in facts.values()):
        columns |= _COLUMNS_OF_CONTROLS
    counted = frozenset(fact.errors_failed for fact in facts.values() if fact.errors_failed)
    return FactGrid(
        benchmark, caption, columns, counted, all(fact.of == "attacked" for fact in facts.values())
    )


def measured_grids(rows: Iterable[MetricRow], grids: Iterable[FactGrid], sheet: Sheet) -> list[Grid]:
    """The tables of measured facts of one sheet; none where its runs hold no such facts."""
    numbers: defaultdict[tuple[str, str], dict[str, MetricRow]] = defaultdict(dict)
    for row in rows:
        place = (row.benchmark, row.version, row.model)
        if place == (sheet.benchmark, sheet.version, sheet.model) and row.suite == OVERALL:
            numbers[row.defense, row.attack][row.metric] = row
    attacked = {line: found for line, found in numbers.items() if line[1] != NO_ATTACK}
    made = [
        _grid(grid, attacked if grid.attacked else numbers)
        for grid in grids
        if grid.benchmark == sheet.benchmark
    ]
    return [grid for grid in made if grid.rows]


def _grid(grid: FactGrid, numbers: _Numbers) -> Grid:
    shown = {
        metric: title for metric, title in grid.columns.items() if any(metric in n for n in numbers.values())
    }
    rows = [
        cells(
            GridCell(defense, "" if attack == NO_ATTACK else attack),
            *_numbers(found, shown),
            *_counts(found, grid),
        )
        for (defense, attack), found in numbers.items()
        if shown
    ]
    unit = "shares in percent" if any(title.endswith(_MEAN) for title in shown.values()) else "in percent"
    caption = f"{grid.caption}, overall, {unit}"
    return Grid(caption, ("Defense", *shown.values(), "Cases", "Errors"), rows, names=1)


def _numbers(found: Mapping[str, MetricRow], shown: Iterable[str]) -> Iterator[GridCell]:
    for metric in shown:
        row = found.get(metric)
        if row is None:
            yield GridCell(_ABSENT)
        else:
            yield difference_cell(row) if metric == ASR_LESS_CONTROL else number_cell(row)


def _counts(found: Mapping[str, MetricRow], grid: FactGrid) -> list[str]:
    whole = next((row for metric, row in found.items() if metric not in grid.errors_failed), None)
    return ["", ""] if whole is None else [str(whole.n), str(whole.errors)]


def measured_notes(rows: Sequence[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """Explain the grids, where the facts are there."""
    metrics = {row.metric for row in rows}
    facts = declared(cases)
    shown = [fact for name, fact in facts.items() if metric_of(name, fact) in metrics]
    yield from dict.fromkeys(fact.note for fact in shown if fact.note)
    if ASR_LESS_CONTROL in metrics:
        yield "Control: the same cases with an empty payload. What succeeds there, no injection has caused."
    yield from _directions(shown)
    yield from _ceilings(rows, cases)
    yield from _one_mode(cases)
    yield from _missing_controls(rows, cases)


def _directions(facts: Sequence[DeclaredFact]) -> Iterator[str]:
    """Say which way each fact is better, where its benchmark says so."""
    told = [
        f"{better} is better for {', '.join(titles)}"
        for better in ("higher", "lower")
        if (titles := list(dict.fromkeys(fact.title for fact in facts if fact.better == better)))
    ]
    if told:
        yield f"Of what was measured besides, {'; '.join(told)}."


def _ceilings(rows: Iterable[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    for sheet in dict.fromkeys((row.benchmark, row.version, row.model) for row in rows):
        mine = [c for c in cases if (c.benchmark, c.version, c.table_model) == sheet]
        suites, never = {case.suite for case in mine}, unsolved_suites(mine)
        if never:
            most = 100.0 * (1 - len(never) / len(suites))
            yield (
                f"{sheet[2]} on {sheet[0]} {sheet[1]}: no run solved a user task of {', '.join(never)}; "
                f"where that is the tasks' fault, utility has a ceiling of {most:.1f}."
            )


def _one_mode(cases: Iterable[CaseRow]) -> Iterator[str]:
    """Defenses that were run without a plan only, where others were run with one."""
    modes: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        if isinstance(mode := case.measured.get("mode"), str):
            modes[case.defense].add(mode)
    alone = sorted(defense for defense, found in modes.items() if found == {"react"})
    if alone and any(found - {"react"} for found in modes.values()):
        yield (
            f"In mode react only: {', '.join(alone)}. A defense that is a whole program of its own has no "
            "part in a planned conversation."
        )


def _missing_controls(rows: Iterable[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """Defenses with facts that are read against a control, and no control."""
    wanting = {metric_of(name, fact) for name, fact in declared(cases).items() if fact.wants_control}
    if not wanting:
        return
    controls = {
        (case.benchmark, case.version, case.table_model, case.defense) for case in cases if is_control([case])
    }
    split = {(row.benchmark, row.version, row.model, row.defense) for row in rows if row.metric in wanting}
    lacking = sorted({key[3] for key in split - controls})
    if lacking:
        yield f"No control (empty payload) was run for: {', '.join(lacking)}."
