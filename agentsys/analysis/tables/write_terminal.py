"""A document for the terminal, as something that a `rich` console prints, as wide as the console is."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from agentsys.analysis.tables.document import BEST, Document, Grid, GridCell
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.fit import (
    GAP,
    Fitted,
    beside_widths,
    broken_widths,
    fitted,
    needed,
    stacked,
    word_lines,
)

BULLET = "- "
"""What a sentence that can be quoted begins with."""


def terminal_document(document: Document) -> RenderableType:
    """Arrange tables, notes and commands by the room there is. Print it with `crop=False`.

    Names are shown as text: markup in them has no effect.
    """
    return Group(*_parts(document))


def terminal_text(document: Document, width: int) -> str:
    """What a terminal of so many columns shows of a document, without colours."""
    text = io.StringIO()
    Console(file=text, width=width).print(terminal_document(document), crop=False)
    return text.getvalue()


def _parts(document: Document) -> Iterator[RenderableType]:
    if document.title:
        yield _wrapped(plain(document.title), style="bold")
    yield from (_wrapped(f"{BULLET}{plain(sentence)}", "bold", hang="  ") for sentence in document.quotable)
    if (document.title or document.quotable) and not document.dense:
        yield Text()
    for heading, grids in document.sections:
        yield _wrapped(plain(heading), style="bold")
        for grid in grids:
            yield from _shown(grid, document.dense)
    yield from (_wrapped(plain(note), style="dim") for note in document.notes)
    yield from (_Broken(partial(command_lines, plain(command))) for command in document.commands)


def _shown(grid: Grid, dense: bool) -> Iterator[RenderableType]:
    if grid.captioned:
        yield _wrapped(plain(grid.caption), style="dim")
    yield FittedGrid(grid, dense)


class _Broken:
    """A text on lines that fit the console; nothing in it is taken for markup.

    Args:
        lines: Columns that there are -> its lines.
        style: A style of rich's.
    """

    def __init__(self, lines: Callable[[int], list[str]], style: str = "") -> None:
        self.lines, self.style = lines, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Break it by the room there is; rich calls it."""
        for line in self.lines(options.max_width):
            yield Text(line, style=self.style, no_wrap=True, overflow="ignore")


def _wrapped(text: str, style: str = "", hang: str = "") -> _Broken:
    """A text that is broken between words alone, so that names and paths in it stay whole."""
    return _Broken(partial(word_lines, text, hang=hang), style)


class FittedGrid:
    """A grid that arranges itself for the console it is printed on (`agentsys.analysis.tables.fit`).

    Print it with `crop=False`: what cannot be made to fit, a name wider than the console, is not cut.
    """

    def __init__(self, grid: Grid, dense: bool = False) -> None:
        self.grid, self.dense = grid, dense

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose by width; rich calls it."""
        shown = fitted(self.grid, options.max_width)
        if shown.written_out:
            for part in shown.grids:
                for row in part.rows:
                    yield from _paragraph(part, row, options.max_width)
        else:
            yield from _tables(shown, console, options)
        if below := " ".join(filter(None, (*shown.said, self.grid.legend))):
            yield _wrapped(plain(below), style="dim")
        if not self.dense:
            yield Text()


def _tables(shown: Fitted, console: Console, options: ConsoleOptions) -> RenderResult:
    for place, part in enumerate(shown.grids):
        if place:
            yield Text()
        room = max(options.max_width, needed(part, shown.stacks))
        yield from console.render(terminal_grid(part, room, shown.stacks), options.update(max_width=room))


def _paragraph(grid: Grid, row: tuple[GridCell, ...], width: int) -> Iterator[RenderableType]:
    """A row without columns: its names, then every heading with its number, as many on a line as fit."""
    names = [plain(cell.in_one) for cell in row[: grid.names] if cell.in_one]
    if grid.names == len(row):
        yield _wrapped(names[0])
        yield from (_wrapped(f"  {name}", "dim", hang="  ") for name in names[1:])
        return
    yield _wrapped(" / ".join(names))
    numbers = zip(grid.header[grid.names :], row[grid.names :], strict=True)
    lines = [" "]
    for item in (f"{plain(name)} {plain(cell.in_one)}" for name, cell in numbers if cell.in_one):
        if lines[-1].strip() and cell_len(lines[-1]) + cell_len(item) + GAP > width:
            lines.append(" ")
        lines[-1] += f"{' ' * (GAP if lines[-1].strip() else 1)}{item}"
    yield from (_wrapped(line, "dim", hang="  ") for line in lines)


def terminal_grid(grid: Grid, room: int, stacks: bool = False) -> Table:
    """Show one grid, without its caption."""
    # The box has a column of its own between two of the grid's.
    widths = broken_widths(grid, room, stacks)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for place, name in enumerate(grid.header):
        paired = grid.beside and any(row[place].detail for row in grid.rows)
        side: JustifyMethod = "left" if place < grid.names or paired else "right"
        heading = stacked(plain(name)) if stacks and place >= grid.names else plain(name)
        # Of several columns that may be broken, rich would narrow each, to less than its longest word too.
        table.add_column(
            Text(heading),
            justify=side,
            no_wrap=place not in grid.wraps,
            overflow="fold",
            width=widths.get(place),
        )
    columns = [_column(grid, place) for place in range(len(grid.header))]
    for index, row in enumerate(zip(*columns, strict=True)):
        table.add_row(*row, end_section=index + 1 in grid.breaks)
    return table


def _column(grid: Grid, place: int) -> list[Text]:
    column = [row[place] for row in grid.rows]
    beside = grid.beside and place >= grid.names
    return _beside(column) if beside else [_cell(cell) for cell in column]


def _beside(column: Sequence[GridCell]) -> list[Text]:
    """Values and details on one line, each aligned; the best one stands out."""
    text, detail = beside_widths(column)
    return [
        Text(f"{plain(cell.text):>{text}}", style="bold" if cell.text.endswith(BEST) else "").append(
            f" {plain(cell.detail):<{detail}}" if detail else "", style="not bold dim"
        )
        for cell in column
    ]


def _cell(cell: GridCell) -> Text:
    text = Text(plain(cell.text), style=Style(link=cell.link or None))
    if not cell.detail:
        return text
    return text.append(f"\n{plain(cell.detail)}" if cell.text else plain(cell.detail), style="dim")


_SHELL_WORD = re.compile(r"(?:'[^']*'|\S)+")
_PIECE = re.compile(r"(?:'[^']*'|[^,])+,?|,")


def command_lines(command: str, width: int) -> list[str]:
    """A shell command on lines that fit, each but the last ending in a backslash.

    Words wider than a line are broken behind a comma; what follows then begins its line.
    """
    lines = ["  "]
    for word in _SHELL_WORD.findall(command):
        pieces = [word] if len(word) + 8 <= width else _PIECE.findall(word)
        for place, piece in enumerate(pieces):
            # Room for a backslash, and for the blank before it.
            if lines[-1].strip() and len(lines[-1]) + len(piece) + 2 > width:
                lines[-1] += "\\"
                lines.append(piece if place else f"      {piece}")
            else:
                lines[-1] += piece
        lines[-1] += " "
    return [line.rstrip() for line in lines]
