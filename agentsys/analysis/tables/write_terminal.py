"""A document for the terminal, as something that a `rich` console prints, as wide as the console is."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from agentsys.analysis.tables.table_document import (
    BEST,
    BULLET,
    PAPER,
    Document,
    Grid,
    GridCell,
    break_between_words,
    make_plain,
)

_GAP = 2
"""Columns between two columns of a grid."""
_LONGEST_NAME = 24
"""Columns of a name, where there is little room."""
_SHORTEST_DETAIL = 8
"""Columns of the smaller print below a short name, where there is little room."""
_NARROWEST = 12
"""Columns that are left to a text that may be broken, however narrow the terminal."""


def arrange_for_terminal(document: Document) -> RenderableType:
    """Arrange tables, notes and commands by the room there is. Print it with `crop=False`.

    Names are shown as text: markup in them has no effect.
    """
    parts: list[RenderableType] = [_Sentence(document.title, "bold")] if document.title else []
    parts += [_Sentence(f"{BULLET}{sentence}", "bold") for sentence in document.quotable]
    gap: list[RenderableType] = [] if document.dense else [Text()]
    if parts:
        parts += gap
    for heading, grids in document.sections:
        parts.append(_Sentence(heading, "bold"))
        for grid in grids:
            if grid.captioned:
                parts.append(_Sentence(grid.caption, "dim"))
            parts += [GridTables(grid), *gap]
    parts += [_Sentence(note, "dim") for note in document.notes]
    # On one line, however long: a command that is copied must be whole.
    parts += [
        Text(f"  {make_plain(command)}", no_wrap=True, overflow="ignore") for command in document.commands
    ]
    return Group(*parts)


def write_terminal_text(document: Document, width: int) -> str:
    """Write what a terminal of so many columns shows of a document, without colours."""
    text = io.StringIO()
    # No colours, even where the environment demands them of everything (FORCE_COLOR): this goes to a file.
    Console(file=text, width=width, color_system=None).print(arrange_for_terminal(document), crop=False)
    return text.getvalue()


@dataclass
class _Sentence:
    """A text that is broken between words alone: rich would break the names and paths in it too."""

    text: str
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Break it by the room there is; rich calls it."""
        lines = break_between_words(make_plain(self.text), options.max_width)
        yield Text(lines, style=self.style, no_wrap=True, overflow="ignore")


@dataclass
class GridTables:
    """A grid as one table or, where the console is too narrow for it, in a tighter arrangement.

    Then columns that say the same in every row stand in a line below, unless they are `Grid.headline`; headings and
    long names are broken; and what still has no room follows in further tables with the same names. No number is
    ever cut or broken.
    Print it with `crop=False`.
    """

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose by width; rich calls it."""
        room, below = options.max_width, [self.grid.legend]
        columns = [_Column(self.grid, number) for number in range(len(self.grid.header))]
        if _sum_widths(columns) > room:
            columns, alike = _split_off_constants(columns)
            below.insert(0, alike)
        tables = [columns] if _sum_widths(columns) <= room else _split_columns(columns, room)
        for index, some in enumerate(tables):
            if index:
                yield Text()
            # rich takes twice as long where it measures or pads cells: only those do that are broken over lines.
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
            parts: list[Sequence[RenderableType]] = []
            for one in some:
                # The box has a column of its own between two of the grid's.
                gap = 0 if one is some[-1] else _GAP - 1
                width, least = (None, one.least + gap) if one.wraps else (one.least + gap, None)
                table.add_column(
                    Text(one.heading), no_wrap=not one.wraps, overflow="fold", width=width, min_width=least
                )
                parts.append(
                    [Padding(text, (0, gap, 0, 0)) for text in one.texts] if one.wraps else one.texts
                )
            for number, row in enumerate(zip(*parts, strict=True)):
                table.add_row(*row, end_section=number + 1 in self.grid.breaks)
            yield from console.render(table, options.update(max_width=max(room, _sum_widths(some))))
        if any(below):
            yield _Sentence(" ".join(filter(None, below)), "dim")


class _Column:
    def __init__(self, grid: Grid, index: int, *, tight: bool = False) -> None:
        self.made_of = grid, index
        self.cells = [row[index] for row in grid.rows]
        self.holds_names, self.wraps = index < grid.names, index in grid.wraps
        self.stays = index in grid.headline
        longest = _LONGEST_NAME if tight and not self.wraps else None
        self.texts = _write_names(self.cells, longest) if self.holds_names else _write_numbers(self.cells)
        self.heading = make_plain(grid.header[index])
        below = _measure_longest_line(text.plain for text in self.texts)
        if tight:  # a heading no wider than what stands below it
            self.heading = textwrap.fill(self.heading, max(below, 1), break_long_words=False)
        whole = max(below, _measure_longest_line([self.heading]))
        if not self.holds_names and not any(cell.detail for cell in self.cells):
            self.heading = "\n".join(line.rjust(whole) for line in self.heading.split("\n"))
            for text in self.texts:
                text.rstrip()
                text.pad_left(whole - text.cell_len)
        self.least = min(whole, _NARROWEST) if self.wraps else whole
        """Columns of the console that it needs."""


def _sum_widths(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _split_off_constants(columns: list[_Column]) -> tuple[list[_Column], str]:
    """Take out columns with the same short text in every row, and say it; at least one of names stays."""
    constant = [
        column
        for column in columns
        if column.heading
        and not (column.wraps or column.stays)
        and len({cell.in_one for cell in column.cells}) == 1
    ]
    names = [column for column in columns if column.holds_names]
    if len(columns[0].cells) < 2:
        return columns, ""
    constant = [column for column in constant if column is not names[-1] or names != constant[: len(names)]]
    text = ", ".join(f"{column.heading.strip()} {column.cells[0].in_one}" for column in constant)
    left = [column for column in columns if column not in constant]
    return left, f"In every row: {text}." if text else ""


def _split_columns(columns: Sequence[_Column], room: int) -> list[list[_Column]]:
    """The names with as many numbers as fit, again and again; all as narrow as they can be.

    What the paper prints stays beside our number.
    """
    narrow = [_Column(*column.made_of, tight=True) for column in columns]
    names = [column for column in narrow if column.holds_names]
    tables = [names]
    groups: list[list[_Column]] = []
    for column in narrow[len(names) :]:
        if groups and column.heading.strip() == PAPER:
            groups[-1].append(column)
        else:
            groups.append([column])
    for group in groups:
        if len(tables[-1]) > len(names) and _sum_widths([*tables[-1], *group]) > room:
            tables.append(names)
        tables[-1] = [*tables[-1], *group]
    return tables


def _measure_longest_line(texts: Iterable[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _write_names(column: Sequence[GridCell], longest: int | None) -> list[Text]:
    """Names with the smaller print below; on lines of so many columns, as far as their words allow.

    Words end in blanks or `_`.
    """
    texts = []
    names = [
        _break_name(make_plain(cell.text), longest) if longest else make_plain(cell.text) for cell in column
    ]
    # A sentence below a name takes no column of the numbers away: it is as narrow as the names.
    room = max(_SHORTEST_DETAIL, *(len(line) for name in names for line in name.split("\n")))
    for name, cell in zip(names, column, strict=True):
        detail = make_plain(cell.detail)
        if longest is not None:
            detail = _break_name(detail, min(room, longest) if " " in detail else longest)
        text = Text(name, style=Style(link=cell.link or None))
        if detail:
            text.append(f"\n{detail}" if name else detail, style="dim")
        texts.append(text)
    return texts


def _break_name(name: str, longest: int) -> str:
    lines = [""]
    for piece in re.findall(r"[^\s_]*[\s_]*", name):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > longest:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _write_numbers(column: Sequence[GridCell]) -> list[Text]:
    """Values and the smaller print beside them, each aligned; the best one stands out."""
    wide, detailed = (
        max((cell_len(make_plain(cell[part])) for cell in column), default=0) for part in (0, 1)
    )
    return [
        Text(f"{make_plain(cell.text):>{wide}}", style="bold" if cell.text.endswith(BEST) else "").append(
            f" {make_plain(cell.detail):<{detailed}}" if detailed else "", style="not bold dim"
        )
        for cell in column
    ]
