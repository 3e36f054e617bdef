"""`Document`: grids of plain text with notes, the common form of everything that is tabulated.

Nothing in it is escaped. Each writer (`write_text`, `write_html`, `write_terminal`) escapes every string
where it puts it down, so that no producer of a document has to remember to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agentsys.analysis.metrics.rates import MetricRow, Number
    from agentsys.analysis.metrics.search_budget import BudgetRow

    WithInterval = MetricRow | Number | BudgetRow

MISSING = "n/a"
"""Where a value is undefined; never 0."""
BEST = "*"
"""Ends the text of a number that is the best of its column."""


class GridCell(NamedTuple):
    """The content of one place of a grid."""

    text: str
    detail: str = ""
    """Smaller print behind the text (in a terminal, below a name): an interval, as a rule."""
    link: str = ""
    """Where the text leads, where links work: `#...` in the same page, or a `file:` URL."""

    @property
    def in_one(self) -> str:
        """Both on one line, e.g. `30.66 (22.4-39.7)`."""
        return f"{self.text} ({self.detail})" if self.detail else self.text


@dataclass(frozen=True)
class Grid:
    """One table."""

    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[GridCell, ...]]
    """Each as long as the header."""
    names: int
    """How many leading columns hold names; the others are numbers, aligned to the right."""
    breaks: frozenset[int] = frozenset()
    """Indices of rows that a rule stands above."""
    wraps: frozenset[int] = frozenset()
    """Indices of columns with long texts, which a terminal may break over lines; others are never broken."""
    captioned: bool = False
    """Whether a terminal shows the caption too: where the headings do not say what the numbers are."""
    legend: str = ""
    """What a terminal says below it."""


@dataclass(frozen=True)
class Document:
    """Grids under their headings, and what has to be said above and below them."""

    sections: Sequence[tuple[str, Sequence[Grid]]]
    """(heading, its grids)."""
    notes: Sequence[str]
    """One sentence or two each."""
    commands: Sequence[str] = ()
    """Shell commands, shown verbatim under the notes."""
    title: str = ""
    """Heading of the whole; empty where the sections' headings say enough."""
    quotable: Sequence[str] = ()
    """Sentences that a paper can quote; they come before the grids."""
    dense: bool = False
    """Whether a terminal shows it without empty lines."""


def cells(*texts: str | GridCell) -> tuple[GridCell, ...]:
    """A row of a grid from plain texts and ready cells."""
    return tuple(text if isinstance(text, GridCell) else GridCell(text) for text in texts)


def number_text(value: float, form: str = ".2f") -> str:
    """Write a value in a form of `format`; by default with two decimals, e.g. `30.66`."""
    return MISSING if math.isnan(value) else format(value, form)


def value_text(number: WithInterval | None) -> str:
    """Write a number's value; the same where there is no number."""
    return MISSING if number is None else number_text(number.value)


def interval_text(number: WithInterval | None, digits: int = 1) -> str:
    """Write an interval, e.g. `22.4-39.7` or `68.2-100`; empty where undefined."""
    if number is None or math.isnan(number.ci_low):
        return ""
    return f"{_bound(number.ci_low, digits)}-{_bound(number.ci_high, digits)}"


def number_cell(number: WithInterval | None) -> GridCell:
    """Put a value into a place of a grid, with its interval in smaller print."""
    return GridCell(value_text(number), interval_text(number))


def difference_cell(number: WithInterval) -> GridCell:
    """A difference may be negative on either side: a dash between its bounds could not be read."""
    known = not math.isnan(number.ci_low)
    return GridCell(value_text(number), f"{number.ci_low:.1f} to {number.ci_high:.1f}" if known else "")


def _bound(value: float, digits: int) -> str:
    """Without a decimal where there is only one such value: it keeps a column of intervals narrow."""
    return f"{value:.0f}" if value in (0.0, 100.0) else f"{value:.{digits}f}"
