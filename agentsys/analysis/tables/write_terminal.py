"""A document for the terminal, as something that a `rich` console prints."""

from __future__ import annotations

from dataclasses import replace

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from agentsys.analysis.tables.document import Document, Grid, GridCell
from agentsys.analysis.tables.escaping import plain

_NARROWEST = 12
"""Columns that are left to a text that may be broken, however narrow the terminal."""


def terminal_document(document: Document) -> RenderableType:
    """Tables, notes and commands. Names are shown as text: markup in them has no effect."""
    parts: list[RenderableType] = []
    for heading, grids in document.sections:
        parts += [Text(plain(heading), style="bold"), *(terminal_grid(grid) for grid in grids)]
    notes = [Text(plain(note), style="dim") for note in document.notes]
    commands = [_whole(f"  {plain(command)}") for command in document.commands]
    return Group(*parts, *notes, *commands)


def _whole(line: str) -> Text:
    """A line that is not broken, so that it can be copied."""
    return Text(line, no_wrap=True, overflow="ignore")


def needed_width(document: Document) -> int:
    """Columns that its widest grid needs: on a narrower console names and numbers would be cut."""
    wide = Console(width=10_000)
    tables = [terminal_grid(_narrowed(grid)) for _, grids in document.sections for grid in grids]
    return max((Measurement.get(wide, wide.options, table).maximum for table in tables), default=0)


def _narrowed(grid: Grid) -> Grid:
    """A grid whose breakable columns are as narrow as they may become."""
    rows = [
        tuple(
            GridCell(cell.text[:_NARROWEST]) if place in grid.wraps else cell
            for place, cell in enumerate(row)
        )
        for row in grid.rows
    ]
    header = tuple(
        name[:_NARROWEST] if place in grid.wraps else name for place, name in enumerate(grid.header)
    )
    return replace(grid, header=header, rows=rows)


def terminal_grid(grid: Grid) -> Table:
    """One grid; its caption is not shown."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(grid.header):
        side: JustifyMethod = "left" if place < grid.names else "right"
        table.add_column(Text(plain(name)), justify=side, no_wrap=place not in grid.wraps, overflow="fold")
    for index, row in enumerate(grid.rows):
        table.add_row(*(_cell(cell) for cell in row), end_section=index + 1 in grid.breaks)
    return table


def _cell(cell: GridCell) -> Text:
    text = Text(plain(cell.text))
    return text.append(f"\n{plain(cell.detail)}", style="dim") if cell.detail else text
