"""`fitted`: a grid arranged for the columns that there are; no number and no name is ever cut.

Where a grid is too wide, columns that say the same in every row go into a line below it, then columns that
it can do without are left out (a line says which), then its numbers stand in parts below each other, and at
last each row is written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len

from agentsys.analysis.tables.document import Grid, GridCell
from agentsys.analysis.tables.escaping import plain
from agentsys.records.short_names import LONGEST

NARROWEST = 12
"""Columns that are left to a text that may be broken, however narrow the terminal."""
GAP = 2
"""Columns between two columns of a grid."""
_MOST_PARTS = 3
"""Parts in which the numbers of a grid may stand; in more, nobody finds the row again."""


class Fitted(NamedTuple):
    """A grid as it is shown."""

    grids: tuple[Grid, ...]
    """Parts with the same rows, one below the other; mostly one."""
    stacks: bool = False
    """Whether headings of numbers have a line for each of their words."""
    said: tuple[str, ...] = ()
    """Lines below it, on what no longer stands in columns."""
    written_out: bool = False
    """Whether each row is a paragraph, for want of room for columns."""


def fitted(grid: Grid, width: int) -> Fitted:
    """Arrange a grid so that no line is wider than `width`."""
    for liked in _as_made(grid):
        if needed(liked.grids[0], liked.stacks) <= width:
            return liked
    tight, said = _without_constants(grid.in_terminal[-1] if grid.in_terminal else grid)
    for stacks in (False, True):
        if needed(tight, stacks) <= width:
            return Fitted((tight,), stacks, said)
    tight, left_out = _without_optional(tight, width)
    said += left_out
    parts = tuple(_parts(tight, width))
    if len(parts) <= _MOST_PARTS and all(needed(part, stacks=True) <= width for part in parts):
        stacks = len(parts) > 1 or needed(tight) > width
        return Fitted(parts, stacks, said)
    return Fitted((tight,), True, said, written_out=True)


def word_lines(text: str, width: int, hang: str = "") -> list[str]:
    """Break a text between words alone: a name or a path that is wider than a line has one for itself.

    Args:
        text: Its own line breaks stay, and so do blanks that a line begins with.
        width: Columns that there are.
        hang: What a line begins with that goes on with the one above.
    """
    lines: list[str] = []
    for given in text.split("\n"):
        words = given.lstrip(" ").split(" ")
        line = given[: len(given) - len(given.lstrip(" "))] + words[0]
        for word in words[1:]:
            if cell_len(line) + 1 + cell_len(word) > width:
                lines.append(line.rstrip())
                line = f"{hang}{word}"
            else:
                line += f" {word}"
        lines.append(line.rstrip())
    return lines


def _as_made(grid: Grid) -> Iterator[Fitted]:
    """The forms with every column in its place, the one liked best first."""
    if grid.beside:
        # A row is a line, and so are the headings while anything else can give way.
        yield from (Fitted((form,)) for form in (grid, *grid.in_terminal))
    elif grid.in_terminal:
        yield from (Fitted((tighter,), stacks=True) for tighter in grid.in_terminal)
    else:
        yield from (Fitted((grid,)), Fitted((grid,), stacks=True))


def needed(grid: Grid, stacks: bool = False) -> int:
    """Columns that a grid takes so that no name and no number is cut.

    If it `stacks`, the headings of numbers have a line for each of their words; likewise below.
    """
    widths = [column_width(grid, place, stacks and place >= grid.names) for place in range(len(grid.header))]
    return sum(widths) + GAP * (len(widths) - 1)


def column_width(grid: Grid, place: int, stacks: bool) -> int:
    """Columns that a column of a grid takes; if it may be broken, at least."""
    heading = plain(grid.header[place])
    lines = (stacked(heading) if stacks else heading).split("\n")
    column = [row[place] for row in grid.rows]
    if grid.beside and place >= grid.names:
        text, detail = beside_widths(column)
        return max(*map(cell_len, lines), text + detail + bool(detail))
    lines += [plain(part) for cell in column for part in (cell.text, cell.detail)]
    whole = max(map(cell_len, lines), default=0)
    if place not in grid.wraps:
        return whole
    words = (cell_len(word) for line in lines for word in line.split())
    return min(whole, max((size for size in words if NARROWEST < size <= LONGEST), default=NARROWEST))


def broken_widths(grid: Grid, width: int, stacks: bool = False) -> dict[int, int]:
    """Columns for each column that may be broken: what it needs, and of what is left most to the widest."""
    whole = replace(grid, wraps=frozenset())
    liked = {place: column_width(whole, place, stacks and place >= grid.names) for place in grid.wraps}
    found = {place: column_width(grid, place, stacks and place >= grid.names) for place in sorted(grid.wraps)}
    for _ in range(width - needed(grid, stacks)):
        place = max(found, key=lambda one: liked[one] - found[one], default=None)
        if place is None or found[place] == liked[place]:
            break
        found[place] += 1
    return found


class BesideWidths(NamedTuple):
    """Columns that values and the details beside them take."""

    text: int
    detail: int


def beside_widths(column: Sequence[GridCell]) -> BesideWidths:
    """Measure a column whose details stand beside its values."""
    return BesideWidths(
        *(max((cell_len(plain(cell[part])) for cell in column), default=0) for part in (0, 1))
    )


def stacked(title: str) -> str:
    """A heading with a line for each part of its words, so that its column is no wider than an interval."""
    return re.sub(r" (?!- )|(?<=\w-)(?=\w)", "\n", title)


def _without_constants(grid: Grid) -> tuple[Grid, tuple[str, ...]]:
    """Take out columns with the same short text in every row; at least one of names stays."""
    if len(grid.rows) < 2:
        return grid, ()
    same = [
        place
        for place, name in enumerate(grid.header)
        if name and place not in grid.wraps and len({row[place].in_one for row in grid.rows}) == 1
    ]
    if len([place for place in same if place < grid.names]) == grid.names:
        same.remove(grid.names - 1)
    values = [(grid.header[place], grid.rows[0][place].in_one) for place in same]
    told = ", ".join(f"{name} {value}" for name, value in values if value)
    return _without(grid, same), (f"In every row: {told}.",) if told else ()


def _without_optional(grid: Grid, width: int) -> tuple[Grid, tuple[str, ...]]:
    """Leave out columns that a grid can do without, until it fits or none is left."""
    gone: list[str] = []
    for name in grid.optional:
        if name in grid.header and needed(grid, stacks=True) > width:
            grid = _without(grid, [grid.header.index(name)])
            gone.append(name)
    return grid, (f"Too narrow for: {', '.join(gone)}.",) if gone else ()


def _without(grid: Grid, places: Sequence[int]) -> Grid:
    kept = [place for place in range(len(grid.header)) if place not in places]
    return _with_columns(grid, kept)


def _with_columns(grid: Grid, kept: Sequence[int]) -> Grid:
    return replace(
        grid,
        header=tuple(grid.header[place] for place in kept),
        rows=[tuple(row[place] for place in kept) for row in grid.rows],
        names=sum(place < grid.names for place in kept),
        wraps=frozenset(new for new, place in enumerate(kept) if place in grid.wraps),
    )


def _parts(grid: Grid, width: int) -> Iterator[Grid]:
    """The names with as many of the numbers as fit, again and again."""
    names, taken = list(range(grid.names)), list[int]()
    for place in range(grid.names, len(grid.header)):
        if taken and needed(_with_columns(grid, [*names, *taken, place]), stacks=True) > width:
            yield _with_columns(grid, [*names, *taken])
            taken = []
        taken.append(place)
    yield _with_columns(grid, [*names, *taken])
