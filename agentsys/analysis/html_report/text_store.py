"""`TextStore`: every text of the report once, however many trajectories repeat it."""

from __future__ import annotations

from collections.abc import Sequence

Segments = tuple[str, ...]
"""A text in pieces: plain, marked, plain, marked, ... (an odd number of them; pieces may be empty)."""

LONGEST = 60_000
"""Characters shown of one text; the rest stays in the file, and the report says so."""


class TextStore:
    """Numbers texts. System prompts, contexts and tool outputs recur in hundreds of cases."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._numbers: dict[Segments, int] = {}
        self.characters = 0
        """Of everything stored, for the report's size limit."""

    def number(self, segments: Sequence[str]) -> int:
        """The text's number; a new one if it was not stored before."""
        key = tuple(segments)
        if key not in self._numbers:
            self._numbers[key] = self.first + len(self._numbers)
            self.characters += sum(len(piece) for piece in key)
        return self._numbers[key]

    def listed(self) -> list[str | list[str]]:
        """Texts in the order of their numbers: a plain string where nothing in it is marked."""
        return [key[0] if len(key) == 1 else list(key) for key in self._numbers]


def clipped(text: str) -> tuple[str, int]:
    """A text of at most `LONGEST` characters, and how many were left out."""
    return text[:LONGEST], max(0, len(text) - LONGEST)
