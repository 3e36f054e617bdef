"""A document for the terminal, as something that a `rich` console prints."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentsys.analysis.document import Document, Grid, GridCell
from agentsys.analysis.escaping import plain


def terminal_document(document: Document) -> RenderableType:
    """Tables, notes and commands. Names are shown as text: markup in them has no effect."""
    parts: list[RenderableType] = []
    for heading, grids in document.sections:
        parts += [Text(plain(heading), style="bold"), *(_table(grid) for grid in grids)]
    notes = [Text(plain(note), style="dim") for note in document.notes]
    commands = [Text(f"  {plain(command)}") for command in document.commands]
    return Group(*parts, *notes, *commands)


def _table(grid: Grid) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(grid.header):
        table.add_column(Text(plain(name)), justify="left" if place < grid.names else "right", no_wrap=True)
    for index, row in enumerate(grid.rows):
        table.add_row(*(_cell(cell) for cell in row), end_section=index + 1 in grid.breaks)
    return table


def _cell(cell: GridCell) -> Text:
    text = Text(plain(cell.text))
    return text.append(f"\n{plain(cell.detail)}", style="dim") if cell.detail else text
