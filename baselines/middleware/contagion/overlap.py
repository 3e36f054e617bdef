"""How much of an output was copied from what was read: common runs of words, and containment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

RUN = 8
"""Fewest words in a row that count as copied."""
_TOKEN = re.compile(r"\w+", re.UNICODE)


@dataclass(frozen=True)
class Copied:
    """What an output took over."""

    share: float
    """Share of the output's words that stand in copied runs, 0 to 1."""
    runs: tuple[str, ...]
    """The copied runs as they stand in the output, in order."""


class Read:
    """The word runs of everything untrusted that was read so far."""

    def __init__(self) -> None:
        self._grams: set[tuple[str, ...]] = set()

    def add(self, text: str) -> None:
        """Remember a text."""
        self._grams.update(_grams([token.group().casefold() for token in _TOKEN.finditer(text)]))

    def copied_into(self, output: str) -> Copied:
        """The runs of at least `RUN` words that an output shares with what was read."""
        tokens = list(_TOKEN.finditer(output))
        words = [token.group().casefold() for token in tokens]
        inside = [False] * len(words)
        for start, gram in enumerate(_grams(words)):
            if gram in self._grams:
                inside[start : start + RUN] = [True] * RUN
        spans = list(_spans(inside))
        runs = tuple(output[tokens[a].start() : tokens[b - 1].end()] for a, b in spans)
        return Copied(sum(inside) / len(inside) if inside else 0.0, runs)


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def _spans(inside: Sequence[bool]) -> Iterator[tuple[int, int]]:
    start = None
    for place, one in enumerate([*inside, False]):
        if one and start is None:
            start = place
        elif not one and start is not None:
            yield start, place
            start = None
