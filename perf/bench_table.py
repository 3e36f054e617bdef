"""`Table`: one table of `make bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows under a sentence that says what was measured and how."""

    said: str
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def text(self) -> str:
        """Markdown."""
        if not self.rows:
            return self.said
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join([f"{self.said}\n", *(f"| {' | '.join(line)} |" for line in lines)])
