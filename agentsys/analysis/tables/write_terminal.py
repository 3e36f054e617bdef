"""A document for the terminal, as something that a `rich` console prints, as wide as the console is."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from agentsys.analysis.tables.document import BEST, Document, Grid, GridCell
from agentsys.analysis.tables.escaping import between_words, plain

BULLET = "- "
"""What a sentence that can be quoted begins with."""
_GAP = 2
"""Columns between two columns of a grid."""
_NARROWEST = 12
"""Columns that are left to a text that may be broken, however narrow the terminal."""


def terminal_document(document: Document) -> RenderableType:
    """Arrange tables, notes and commands by the room there is. Print it with `crop=False`.

    Names are shown as text: markup in them has no effect.
    """
    return Group(*_parts(document))


def terminal_text(document: Document, width: int) -> str:
    """Write what a terminal of so many columns shows of a document, without colours."""
    text = io.StringIO()
    Console(file=text, width=width).print(terminal_document(document), crop=False)
    return text.getvalue()


def _parts(document: Document) -> Iterator[RenderableType]:
    if document.title:
        yield _Sentence(document.title, "bold")
    yield from (_Sentence(f"{BULLET}{sentence}", "bold") for sentence in document.quotable)
    if (document.title or document.quotable) and not document.dense:
        yield Text()
    for heading, grids in document.sections:
        yield _Sentence(heading, "bold")
        for grid in grids:
            if grid.captioned:
                yield _Sentence(grid.caption, "dim")
            yield GridTables(grid)
            if grid.legend:
                yield _Sentence(grid.legend, "dim")
            if not document.dense:
                yield Text()
    yield from (_Sentence(note, "dim") for note in document.notes)
    # On one line, however long: a command that is copied must be whole.
    yield from (Text(f"  {plain(command)}", no_wrap=True, overflow="ignore") for command in document.commands)


class _Sentence:
    """A text that is broken between words alone: rich would break the names and paths in it too."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = plain(text), style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Break it by the room there is; rich calls it."""
        lines = between_words(self.text, options.max_width)
        yield Text(lines, style=self.style, no_wrap=True, overflow="ignore")


class GridTables:
    """A grid as one table; where the console is too narrow, as several with the same names.

    Print it with `crop=False`: a number that is wider than the console is not cut.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose by width; rich calls it."""
        room = options.max_width
        everything = range(len(self.grid.header))
        stacks = self._width(everything, stacks=False) > room
        for index, places in enumerate(self._split(room) if stacks else [everything]):
            if index:
                yield Text()
            yield from console.render(self._table(places, room, stacks=stacks), options)

    def _split(self, room: int) -> list[list[int]]:
        """The columns of each table: all in one if they fit, else the names with as many numbers as do."""
        names = list(range(self.grid.names))
        tables = [names]
        for place in range(self.grid.names, len(self.grid.header)):
            if len(tables[-1]) > len(names) and self._width([*tables[-1], place], stacks=True) > room:
                tables.append(names)
            tables[-1] = [*tables[-1], place]
        return tables

    def _width(self, places: Sequence[int], *, stacks: bool) -> int:
        """Columns of the console that some columns of the grid need, so that no number and no name is cut."""
        return sum(self._least(place, stacks) for place in places) + _GAP * (len(places) - 1)

    def _least(self, place: int, stacks: bool) -> int:
        texts = [self._heading(place, stacks), *(text.plain for text in self._column(place))]
        whole = _longest_line(texts)
        return min(whole, _NARROWEST) if place in self.grid.wraps else whole

    def _heading(self, place: int, stacks: bool) -> str:
        """A column's heading; if it `stacks`, on several lines where it is wider than what is below."""
        heading = plain(self.grid.header[place])
        below = _longest_line(text.plain for text in self._column(place))
        return textwrap.fill(heading, max(below, 1), break_long_words=False) if stacks else heading

    def _table(self, places: Sequence[int], room: int, *, stacks: bool) -> Table:
        """Show some columns of the grid; names are broken only where one number beside them has no room."""
        too_wide = self._width(places, stacks=stacks) > room
        # The box has a column of its own between two of the grid's.
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for place in places:
            broken = place in self.grid.wraps or (too_wide and place < self.grid.names)
            table.add_column(
                Text(self._heading(place, stacks)),
                # Smaller print is aligned by blanks, and rich takes those off the end of what it puts right.
                justify="left" if place < self.grid.names or self._detailed(place) else "right",
                no_wrap=not broken,
                overflow="fold",
                min_width=None if broken else self._least(place, stacks),
            )
        columns = [self._column(place) for place in places]
        for index, row in enumerate(zip(*columns, strict=True)):
            table.add_row(*row, end_section=index + 1 in self.grid.breaks)
        return table

    def _detailed(self, place: int) -> bool:
        return any(row[place].detail for row in self.grid.rows)

    def _column(self, place: int) -> list[Text]:
        column = [row[place] for row in self.grid.rows]
        return [_name(cell) for cell in column] if place < self.grid.names else _numbers(column)


def _longest_line(texts: Iterable[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _name(cell: GridCell) -> Text:
    text = Text(plain(cell.text), style=Style(link=cell.link or None))
    if not cell.detail:
        return text
    return text.append(f"\n{plain(cell.detail)}" if cell.text else plain(cell.detail), style="dim")


def _numbers(column: Sequence[GridCell]) -> list[Text]:
    """Values and the smaller print beside them, each aligned; the best one stands out."""
    wide, detailed = (max((cell_len(plain(cell[part])) for cell in column), default=0) for part in (0, 1))
    return [
        Text(f"{plain(cell.text):>{wide}}", style="bold" if cell.text.endswith(BEST) else "").append(
            f" {plain(cell.detail):<{detailed}}" if detailed else "", style="not bold dim"
        )
        for cell in column
    ]
