"""`Document`: grids of plain text with notes, the common form of everything that is tabulated.

Nothing in it is escaped. Each writer (`write_markdown`, `write_latex`, `write_html`, `write_terminal`)
escapes every string where it puts it down, so that no producer of a document has to remember to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class GridCell(NamedTuple):
    """What stands in one place of a grid."""

    text: str
    detail: str = ""
    """Smaller print behind (or, in a terminal, below) the text: an interval, as a rule."""

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


@dataclass(frozen=True)
class Document:
    """Grids under their headings, and what has to be said below them."""

    sections: Sequence[tuple[str, Sequence[Grid]]]
    """(heading, its grids)."""
    notes: Sequence[str]
    """One sentence or two each."""
    commands: Sequence[str] = ()
    """Shell commands, shown verbatim under the notes."""


def cells(*texts: str | GridCell) -> tuple[GridCell, ...]:
    """A row of a grid from plain texts and ready cells."""
    return tuple(text if isinstance(text, GridCell) else GridCell(text) for text in texts)
