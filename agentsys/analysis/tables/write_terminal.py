"""A document for the terminal, as something that a `rich` console prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.style import Style
from rich.table import Table
from rich.text import Text

from agentsys.analysis.tables.document import Document, Grid, GridCell
from agentsys.analysis.tables.escaping import plain

_NARROWEST = 12
"""Columns that are left to a text that may be broken, however narrow the terminal."""
_FREE = 10_000
"""Columns of a console in which everything fits."""


def terminal_document(document: Document) -> RenderableType:
    """Arrange tables, notes and commands by the room there is. Print it with `crop=False`.

    Names are shown as text: markup in them has no effect.
    """
    return Group(*_parts(document))


def _parts(document: Document) -> Iterator[RenderableType]:
    if document.title:
        yield Text(plain(document.title), style="bold")
    yield from (Text(f"- {plain(sentence)}") for sentence in document.quotable)
    if document.title or document.quotable:
        yield Text()
    for heading, grids in document.sections:
        yield Text(plain(heading), style="bold")
        for grid in grids:
            yield from _shown(grid)
    yield from (Text(plain(note), style="dim") for note in document.notes)
    yield from (_whole(f"  {plain(command)}") for command in document.commands)


def _shown(grid: Grid) -> Iterator[RenderableType]:
    if grid.captioned:
        yield Text(plain(grid.caption), style="dim")
    yield FirstThatFits(_arrangements(grid))


class Arrangement(NamedTuple):
    """One way to show a grid's numbers."""

    grid: Grid
    stacks: bool
    """Whether headings of numbers have a line for each of their words."""


def _arrangements(grid: Grid) -> list[Arrangement]:
    """Every form in which a terminal may show a grid, the one liked best first."""
    if grid.in_terminal:
        return [Arrangement(tighter, stacks=True) for tighter in grid.in_terminal]
    return [Arrangement(grid, stacks=False), Arrangement(grid, stacks=True)]


class FirstThatFits:
    """The first arrangement that the console has room for; if it has for none, the last one uncut.

    Print it with `crop=False`: a console cuts off what stands beyond its width otherwise.

    Args:
        arrangements: Ways to show the same numbers, the one liked best first.
    """

    def __init__(self, arrangements: Sequence[Arrangement]) -> None:
        self.arrangements = arrangements

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose by width; rich calls it."""
        needed = [_needed(arrangement) for arrangement in self.arrangements]
        fitting = (place for place, width in enumerate(needed) if width <= options.max_width)
        chosen = next(fitting, len(self.arrangements) - 1)
        room = max(options.max_width, needed[chosen])
        yield from console.render(terminal_grid(*self.arrangements[chosen]), options.update(max_width=room))


def needed_width(document: Document) -> int:
    """Columns of the widest grid in its tightest arrangement: on a narrower console it stands out."""
    tightest = (_arrangements(grid)[-1] for _, grids in document.sections for grid in grids)
    return max((_needed(grid) for grid in tightest), default=0)


def _needed(shown: Arrangement) -> int:
    """Columns that an arrangement needs so that no name and no number is cut."""
    wide = Console(width=_FREE)
    return Measurement.get(wide, wide.options, terminal_grid(_narrowed(shown.grid), shown.stacks)).maximum


def _narrowed(grid: Grid) -> Grid:
    """A grid whose breakable columns are as narrow as they may become."""

    def cut(text: str) -> str:
        return text[:_NARROWEST]

    rows = [
        tuple(
            GridCell(cut(cell.text), cut(cell.detail)) if place in grid.wraps else cell
            for place, cell in enumerate(row)
        )
        for row in grid.rows
    ]
    header = tuple(cut(name) if place in grid.wraps else name for place, name in enumerate(grid.header))
    return replace(grid, header=header, rows=rows)


def stacked(title: str) -> str:
    """A heading with a line for each part of its words, so that its column is no wider than an interval."""
    return re.sub(r" (?!- )|(?<=\w-)(?=\w)", "\n", title)


def terminal_grid(grid: Grid, stacks: bool = False) -> Table:
    """Show one grid, without its caption.

    Args:
        grid: What to show.
        stacks: Whether headings of numbers have a line for each of their words.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(grid.header):
        side: JustifyMethod = "left" if place < grid.names else "right"
        heading = stacked(plain(name)) if stacks and place >= grid.names else plain(name)
        table.add_column(Text(heading), justify=side, no_wrap=place not in grid.wraps, overflow="fold")
    for index, row in enumerate(grid.rows):
        table.add_row(*(_cell(cell) for cell in row), end_section=index + 1 in grid.breaks)
    return table


def _cell(cell: GridCell) -> Text:
    text = Text(plain(cell.text), style=Style(link=cell.link or None))
    if not cell.detail:
        return text
    return text.append(f"\n{plain(cell.detail)}" if cell.text else plain(cell.detail), style="dim")


def _whole(line: str) -> Text:
    """A line that is not broken, so that it can be copied."""
    return Text(line, no_wrap=True, overflow="ignore")
