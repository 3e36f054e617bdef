"""Tables of a terminal that are arranged by the room there is, and never cut."""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

_FREE = 10_000
"""Columns of a console in which everything fits."""


class FirstThatFits:
    """The first of some tables that the console has room for; if it has for none, the last one uncut.

    Print it with `crop=False`: a console cuts off what stands beyond its width otherwise.

    Args:
        tables: The same numbers in several arrangements, the one liked best first.
    """

    def __init__(self, *tables: Table) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Picks by width; rich calls it."""
        free = options.update(max_width=_FREE)
        needed = [Measurement.get(console, free, table).maximum for table in self.tables]
        fitting = (place for place, width in enumerate(needed) if width <= options.max_width)
        chosen = next(fitting, len(self.tables) - 1)
        room = max(options.max_width, needed[chosen])
        yield from console.render(self.tables[chosen], options.update(max_width=room))


def stacked(title: str) -> str:
    """A heading with a line for each part of its words, so that its column is no wider than an interval."""
    return re.sub(r" (?!- )|(?<=\w-)(?=\w)", "\n", title)
