"""A document for the terminal, as something that a `rich` console prints, as wide as the console is."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from agentsys.analysis.tables.table_document import (
    BEST,
    BULLET,
    Document,
    Grid,
    GridCell,
    between_words,
    plain,
)

_GAP = 2
"""Columns between two columns of a grid."""
_LONGEST_NAME = 24
"""Columns of a name, where there is little room."""
_NARROWEST = 12
"""Columns that are left to a text that may be broken, however narrow the terminal."""


def terminal_document(document: Document) -> RenderableType:
    """Arrange tables, notes and commands by the room there is. Print it with `crop=False`.

    Names are shown as text: markup in them has no effect.
    """
    return Group(*_terminal_parts(document))


def terminal_text(document: Document, width: int) -> str:
    """Write what a terminal of so many columns shows of a document, without colours."""
    text = io.StringIO()
    Console(file=text, width=width).print(terminal_document(document), crop=False)
    return text.getvalue()


def _terminal_parts(document: Document) -> Iterator[RenderableType]:
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
    """A grid as one table or, where the console is too narrow for it, in a tighter arrangement.

    Then columns that say the same in every row stand in a line below, headings and long names are broken, and
    what still has no room follows in further tables with the same names. No number is ever cut or broken.
    Print it with `crop=False`.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose by width; rich calls it."""
        room, below = options.max_width, [self.grid.legend]
        columns = [_Column(self.grid, place) for place in range(len(self.grid.header))]
        if _width(columns) > room:
            columns, alike = _without_constants(columns)
            below.insert(0, alike)
        fits = _width(columns) <= room
        tables = [columns] if fits else _split_columns([column.tight() for column in columns], room)
        for index, some in enumerate(tables):
            if index:
                yield Text()
            yield from console.render(self._table(some), options)
        if any(below):
            yield _Sentence(" ".join(filter(None, below)), "dim")

    def _table(self, columns: Sequence[_Column]) -> Table:
        # The box has a column of its own between two of the grid's.
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for column in columns:
            table.add_column(
                Text(column.heading),
                justify=column.side,
                no_wrap=not column.wraps,
                overflow="fold",
                min_width=column.least,
            )
        for index, row in enumerate(zip(*(column.texts for column in columns), strict=True)):
            table.add_row(*row, end_section=index + 1 in self.grid.breaks)
        return table


class _Column:
    """A column of a grid as a terminal shows it."""

    def __init__(self, grid: Grid, place: int) -> None:
        self.cells = [row[place] for row in grid.rows]
        self.heading = plain(grid.header[place])
        self.holds_names, self.wraps = place < grid.names, place in grid.wraps
        self.texts = _name_texts(self.cells) if self.holds_names else _number_texts(self.cells)

    @property
    def side(self) -> Literal["left", "right"]:
        """Smaller print is aligned by blanks, and rich takes those off the end of what it puts right."""
        return "left" if self.holds_names or any(cell.detail for cell in self.cells) else "right"

    @property
    def least(self) -> int:
        """Columns of the console that it needs."""
        whole = _longest_line([self.heading, *(text.plain for text in self.texts)])
        return min(whole, _NARROWEST) if self.wraps else whole

    def tight(self) -> _Column:
        """The same with a heading no wider than what stands below it, and names on several lines."""
        if self.holds_names and not self.wraps:
            self.texts = _name_texts(self.cells, _LONGEST_NAME)
        below = _longest_line(text.plain for text in self.texts)
        self.heading = textwrap.fill(self.heading, max(below, 1), break_long_words=False)
        return self


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _without_constants(columns: list[_Column]) -> tuple[list[_Column], str]:
    """Take out columns with the same short text in every row, and say it; at least one of names stays."""
    constant = [
        column
        for column in columns
        if column.heading and not column.wraps and len({cell.in_one for cell in column.cells}) == 1
    ]
    names = [column for column in columns if column.holds_names]
    if len(columns[0].cells) < 2:
        return columns, ""
    constant = [column for column in constant if column is not names[-1] or names != constant[: len(names)]]
    told = ", ".join(f"{column.heading} {column.cells[0].in_one}" for column in constant)
    left = [column for column in columns if column not in constant]
    return left, f"In every row: {told}." if told else ""


def _split_columns(columns: Sequence[_Column], room: int) -> list[list[_Column]]:
    """The names with as many numbers as fit, again and again."""
    names = [column for column in columns if column.holds_names]
    tables = [names]
    for column in columns[len(names) :]:
        if len(tables[-1]) > len(names) and _width([*tables[-1], column]) > room:
            tables.append(names)
        tables[-1] = [*tables[-1], column]
    return tables


def _longest_line(texts: Iterable[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _name_texts(column: Sequence[GridCell], longest: int | None = None) -> list[Text]:
    return [_name_text(cell, longest) for cell in column]


def _name_text(cell: GridCell, longest: int | None) -> Text:
    text = Text(_break_name(plain(cell.text), longest), style=Style(link=cell.link or None))
    if not cell.detail:
        return text
    detail = _break_name(plain(cell.detail), longest)
    return text.append(f"\n{detail}" if cell.text else detail, style="dim")


def _break_name(name: str, longest: int | None) -> str:
    """A name on lines of so many columns, as far as its words, which end in blanks or `_`, allow."""
    lines = [""]
    for piece in re.findall(r"[^\s_]*[\s_]*", name):
        if longest is not None and lines[-1] and cell_len(lines[-1] + piece.rstrip()) > longest:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _number_texts(column: Sequence[GridCell]) -> list[Text]:
    """Values and the smaller print beside them, each aligned; the best one stands out."""
    wide, detailed = (max((cell_len(plain(cell[part])) for cell in column), default=0) for part in (0, 1))
    return [
        Text(f"{plain(cell.text):>{wide}}", style="bold" if cell.text.endswith(BEST) else "").append(
            f" {plain(cell.detail):<{detailed}}" if detailed else "", style="not bold dim"
        )
        for cell in column
    ]
