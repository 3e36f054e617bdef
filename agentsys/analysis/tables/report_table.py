"""`report_table`: a report for the terminal."""

from __future__ import annotations

from itertools import zip_longest

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, METRICS, TARGETED_ASR, Cell
from agentsys.analysis.statistics.estimate import OVERALL, POOLED
from agentsys.analysis.tables.document import Grid
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.extra_grids import extra_grids
from agentsys.analysis.tables.numbers_as_text import interval_text, value_text
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import METRIC_TITLES, Line, Sheet, sheets
from agentsys.analysis.tables.terminal_fit import FirstThatFits, stacked
from agentsys.analysis.tables.write_terminal import terminal_grid
from agentsys.records.case_row import NO_ATTACK


def report_table(found: Report) -> RenderableType:
    """Two tables per model and benchmark version (overall, then per suite) and the footnotes.

    Args:
        found: From `agentsys.analysis.tables.report.report`.

    Returns:
        Something for `rich.console.Console.print(..., crop=False)`. Names are shown as text: markup in them
        has no effect.
    """
    parts: list[RenderableType] = []
    for sheet in sheets(found.rows):
        parts += [Text(plain(sheet.title), style="bold"), _overall(sheet, found)]
        for grid in extra_grids(found, sheet):
            parts += [Text(plain(grid.caption), style="dim"), _measured(grid)]
        parts.append(FirstThatFits(_suites_across(sheet), _suites_down(sheet)))
    notes = [Text(plain(note), style="dim") for note in found.notes]
    return Group(*parts, *notes)


def _overall(sheet: Sheet, found: Report) -> Table:
    shares = {line.name: _share(sheet, line, found) for line in sheet.lines}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("Overall, %", overflow="fold")
    for metric in METRICS:
        table.add_column(stacked(METRIC_TITLES[metric]), justify="right", no_wrap=True)
    table.add_column("Cases", justify="right", no_wrap=True)
    if any(shares.values()):
        table.add_column(stacked("Payload never seen"), justify="right", no_wrap=True)
    for line in sheet.lines:
        cells = [_name(line), *(_number(line, metric) for metric in METRICS), _cases(line)]
        table.add_row(*cells, *([Text(shares[line.name])] if any(shares.values()) else []))
    return table


def _measured(grid: Grid) -> RenderableType:
    narrow = terminal_grid(grid)
    for column in narrow.columns[grid.names :]:
        column.header = Text(stacked(str(column.header)))
    return FirstThatFits(terminal_grid(grid), narrow)


def _suites_across(sheet: Sheet) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("By suite, %", overflow="fold")
    table.add_column("")
    for suite in (*sheet.suites, POOLED):
        table.add_column(Text(plain(suite)), justify="right", no_wrap=True)
    for line in sheet.lines:
        metrics = [metric for metric in METRICS if (metric, OVERALL) in line.numbers]
        names = [*_name(line).split("\n"), Text(), Text(), Text()]
        for name, metric in zip(names, metrics, strict=False):
            numbers = [value_text(line.numbers.get((metric, suite))) for suite in (*sheet.suites, POOLED)]
            table.add_row(name, METRIC_TITLES[metric], *numbers, end_section=metric == metrics[-1])
    return table


def _suites_down(sheet: Sheet) -> Table:
    """The same for many suites, or for names too long to stand side by side."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("By suite, %", overflow="fold")
    table.add_column("")
    for metric in METRICS:
        table.add_column(stacked(METRIC_TITLES[metric]), justify="right", no_wrap=True)
    for line in sheet.lines:
        names = _name(line).split("\n")
        for name, suite in zip_longest(names, (*sheet.suites, POOLED)):
            numbers = [value_text(line.numbers.get((metric, suite))) for metric in METRICS]
            table.add_row(name or Text(), Text(plain(suite)), *numbers, end_section=suite == POOLED)
    return table


def _name(line: Line) -> Text:
    name = Text(plain(line.defense))
    return name if line.attack == NO_ATTACK else name.append(f"\n{plain(line.attack)}", style="dim")


def _number(line: Line, metric: str) -> Text:
    number = line.numbers.get((metric, OVERALL))
    text = Text(value_text(number))
    interval = interval_text(number)
    return text.append(f"\n{interval}", style="dim") if interval else text


def _cases(line: Line) -> Text:
    """Benign and attacked cases behind the rates, and how many errored."""
    kinds = [line.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR)]
    known = [kind for kind in kinds if kind is not None]
    text = Text("+".join(str(kind.n) for kind in known))
    errors = sum(kind.errors for kind in known)
    return text.append(f"\n{errors} error{'s' if errors > 1 else ''}", style="red") if errors else text


def _share(sheet: Sheet, line: Line, found: Report) -> str:
    cell = Cell(sheet.benchmark, sheet.version, sheet.model, line.defense, line.attack)
    return f"{found.unexposed[cell]:.1f}" if cell in found.unexposed else ""
