"""`SheetView`: one model's numbers as the page's tables show them."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.analysis.html_report.interval_figure import IntervalFigure, interval_figure
from agentsys.analysis.metrics.rates import BENIGN_UTILITY, METRICS, TARGETED_ASR, Cell
from agentsys.analysis.statistics.estimate import OVERALL, POOLED
from agentsys.analysis.tables.document import Grid
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.extra_grids import extra_grids
from agentsys.analysis.tables.numbers_as_text import interval_text, value_text
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import METRIC_TITLES, Line, Sheet, sheets
from agentsys.records.case_row import NO_ATTACK


@dataclass(frozen=True)
class NumberView:
    """A value and its interval, as text."""

    value: str
    interval: str
    """Empty where undefined."""


@dataclass(frozen=True)
class OverallRow:
    """One defense under one attack, all suites."""

    defense: str
    attack: str
    """Empty where none was run."""
    numbers: list[NumberView]
    """One per metric."""
    benign_cases: int
    attacked_cases: int
    errors: int
    unexposed: str
    """Percent of attacked cases in which no tool returned the payload; empty where unknown."""


@dataclass(frozen=True)
class SuiteRow:
    """One metric of one defense under one attack, suite by suite."""

    defense: str
    attack: str
    metric: str
    numbers: list[NumberView]
    """One per suite, then pooled."""


@dataclass(frozen=True)
class GridView:
    """A table that only some runs have."""

    caption: str
    header: list[str]
    rows: list[list[NumberView]]
    """As long as the header; a name's smaller print (an attack) stands where a number's interval does."""
    names: int
    """How many leading columns hold names."""


@dataclass(frozen=True)
class SheetView:
    """Tables and figure of one model on one version of a benchmark."""

    title: str
    metrics: list[str]
    overall: list[OverallRow]
    extra: list[GridView]
    """What benchmarks measure besides the scores, paired denials of service; mostly empty."""
    suites: list[str]
    """Column titles of the second table, `pooled` last."""
    by_suite: list[SuiteRow]
    figure: IntervalFigure


def sheet_views(found: Report) -> list[SheetView]:
    """Everything that was measured, arranged for the page."""
    return [_view(sheet, found) for sheet in sheets(found.rows)]


def _view(sheet: Sheet, found: Report) -> SheetView:
    suites = [*sheet.suites, POOLED]
    return SheetView(
        title=plain(sheet.title),
        metrics=[METRIC_TITLES[metric] for metric in METRICS],
        overall=[_overall(sheet, line, found) for line in sheet.lines],
        extra=[_grid(grid) for grid in extra_grids(found, sheet)],
        suites=[plain(suite) for suite in suites],
        by_suite=[
            SuiteRow(
                plain(line.defense),
                _attack(line),
                METRIC_TITLES[metric],
                [_number(line, metric, suite) for suite in suites],
            )
            for line in sheet.lines
            for metric in METRICS
            if (metric, OVERALL) in line.numbers
        ],
        figure=interval_figure(sheet),
    )


def _overall(sheet: Sheet, line: Line, found: Report) -> OverallRow:
    counts = [line.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR)]
    cell = Cell(sheet.benchmark, sheet.version, sheet.model, line.defense, line.attack)
    return OverallRow(
        defense=plain(line.defense),
        attack=_attack(line),
        numbers=[_number(line, metric, OVERALL) for metric in METRICS],
        benign_cases=counts[0].n if counts[0] else 0,
        attacked_cases=counts[1].n if counts[1] else 0,
        errors=sum(count.errors for count in counts if count),
        unexposed=f"{found.unexposed[cell]:.1f}" if cell in found.unexposed else "",
    )


def _grid(grid: Grid) -> GridView:
    rows = [[NumberView(plain(cell.text), plain(cell.detail)) for cell in row] for row in grid.rows]
    caption = plain(grid.caption[:1].upper() + grid.caption[1:])
    return GridView(caption, [plain(title) for title in grid.header], rows, grid.names)


def _number(line: Line, metric: str, suite: str) -> NumberView:
    number = line.numbers.get((metric, suite))
    return NumberView(value_text(number), interval_text(number))


def _attack(line: Line) -> str:
    return "" if line.attack == NO_ATTACK else plain(line.attack)
