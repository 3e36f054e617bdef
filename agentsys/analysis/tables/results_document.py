"""`results_document`: what was measured as grids, one section per model on one version of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentsys.analysis.metrics.denial import ASR_WHERE_SOLVED, UTILITY_CHANGE, Denial
from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, MetricRow
from agentsys.analysis.statistics.estimate import OVERALL, POOLED
from agentsys.analysis.tables.benchmark_facts_grid import measured_grids
from agentsys.analysis.tables.document import (
    Document,
    Grid,
    GridCell,
    cells,
    difference_cell,
    number_cell,
    value_text,
)
from agentsys.analysis.tables.output import Output, records_of
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import MOST_ACROSS, ResultsLine, Sheet, sheets
from agentsys.records.case_row import NO_ATTACK


def results_output(found: Report, findings: Sequence[str] = (), screen: Document | None = None) -> Output:
    """Make a report ready to be written in any form."""
    document = replace(results_document(found), quotable=findings)
    return Output("agentsys results", document, records_of(MetricRow, found.long_form), screen=screen)


def results_document(found: Report, *, intervals_by_suite: bool = False) -> Document:
    """Arrange overall grids, what only some runs have, grids by suite, and the footnotes.

    Args:
        found: What was measured, from `agentsys.analysis.tables.report.report`.
        intervals_by_suite: Whether the numbers by suite have their intervals, for which paper lacks room.
    """
    sections = [
        (sheet.title, (_overall(sheet, found), *_extra(sheet, found), _by_suite(sheet, intervals_by_suite)))
        for sheet in sheets(found.rows, found.titles)
    ]
    return Document(sections, found.notes)


def _extra(sheet: Sheet, found: Report) -> list[Grid]:
    """Grids of what the sheet's runs have besides the metrics; mostly none."""
    grids = [*measured_grids(found.measured, found.fact_grids, sheet), *_denial_grids(found.denials, sheet)]
    return [replace(grid, captioned=True) for grid in grids]


def _overall(sheet: Sheet, found: Report) -> Grid:
    counts = ("Benign cases", "Attacked cases", "Errors", "Payload never returned")
    rows = [
        cells(
            *_names(line),
            *_numbers(line, sheet),
            *_counts(line),
            found.unexposed_text(sheet, line),
        )
        for line in sheet.lines
    ]
    header = ("Defense", "Attack", *sheet.titles.values(), *counts)
    return Grid("overall, in percent", header, rows, names=2, captioned=True)


def _numbers(line: ResultsLine, sheet: Sheet) -> list[GridCell]:
    return [number_cell(line.numbers.get((metric, OVERALL))) for metric in sheet.titles]


def _counts(line: ResultsLine) -> list[str]:
    kinds = [line.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR)]
    return [*(str(kind.n) if kind else "0" for kind in kinds), str(line.errors)]


def _by_suite(sheet: Sheet, intervals: bool) -> Grid:
    """Every metric of every suite and of all cases pooled."""
    chosen = _suites_down if len(sheet.suites) > MOST_ACROSS else _suites_across
    return replace(chosen(sheet, intervals), captioned=True)


def _suites_across(sheet: Sheet, intervals: bool) -> Grid:
    """A column per suite, a row per line and metric."""
    suites = [*sheet.suites, POOLED]
    rows = [
        cells(*_names(line), sheet.titles[metric], *(_of(line, metric, suite, intervals) for suite in suites))
        for line in sheet.lines
        for metric in _present(line, sheet)
    ]
    return Grid("by suite, in percent", ("Defense", "Attack", "Metric", *suites), rows, names=3)


def _suites_down(sheet: Sheet, intervals: bool) -> Grid:
    """A row per line and suite, a column per metric."""
    suites = [*sheet.suites, POOLED]
    rows = [
        cells(*_names(line), suite, *(_of(line, metric, suite, intervals) for metric in sheet.titles))
        for line in sheet.lines
        for suite in suites
    ]
    header = ("Defense", "Attack", "Suite", *sheet.titles.values())
    breaks = frozenset(range(len(suites), len(rows), len(suites)))
    return Grid("by suite, in percent", header, rows, names=3, breaks=breaks)


def _present(line: ResultsLine, sheet: Sheet) -> list[str]:
    return [metric for metric in sheet.titles if (metric, OVERALL) in line.numbers]


def _of(line: ResultsLine, metric: str, suite: str, intervals: bool = False) -> GridCell:
    number = line.numbers.get((metric, suite))
    return number_cell(number) if intervals else GridCell(value_text(number))


def _names(line: ResultsLine) -> list[str]:
    """Fill the columns of defense and attack."""
    return [line.defense, "" if line.attack == NO_ATTACK else line.attack]


_DENIAL_HEADER = (
    "Defense",
    "ASR where solved",
    "Solved without attack",
    "Utility change",
    "Lost",
    "Gained",
    "Tasks",
)


def _denial_grids(found: Iterable[Denial], sheet: Sheet) -> list[Grid]:
    """One grid of paired denials of service; none where no run has them beside benign cases."""
    place = (sheet.benchmark, sheet.version, sheet.model)
    rows = [_denial(denial) for denial in found if denial.cell[:3] == place]
    caption = "denial of service beside the same tasks without attack, overall, in percent"
    return [Grid(caption, _DENIAL_HEADER, rows, names=1)] if rows else []


def _denial(denial: Denial) -> tuple[GridCell, ...]:
    overall = {row.metric: row for row in denial.rows if row.suite == OVERALL}
    solved, change = overall.get(ASR_WHERE_SOLVED), overall[UTILITY_CHANGE]
    return cells(
        GridCell(denial.cell.defense, denial.cell.attack),
        number_cell(solved),
        "0" if solved is None else str(solved.n),
        difference_cell(change),
        *(str(count) for count in (denial.lost, denial.gained, denial.pairs)),
    )
