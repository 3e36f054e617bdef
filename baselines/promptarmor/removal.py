"""Removing a quotation from a text, though the guard may have changed its case, quotes or white space.

Words are looked up in order, each within a bounded distance of the one before it. A pattern with open
wildcards between the words would be slow, and would delete all between a first and a last word that happen
to stand far apart.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

RemovalRule = Literal["fuzzy", "exact", "withhold"]

# What YAML and JSON write for line breaks and other characters is no part of a word.
_WORD = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[nrtabefv0NLP_])|(\w+)")
LEAST_WORDS, LEAST_CHARS = 3, 12
"""Shorter quotations are only removed where they stand letter by letter."""
_MOST_STEPS = 2_000_000
"""Comparisons after which a quotation counts as not found: a text of one repeated word is no quotation."""


def remove_quotation(text: str, quotation: str, *, fuzzy: bool, gap: int) -> str | None:
    """A text without every place where a quotation stands; None if it stands nowhere.

    Args:
        text: The text.
        quotation: What to take out.
        fuzzy: Whether words in order with little between them count, or letters alone.
        gap: Most characters between two neighbouring words of a place.
    """
    wanted = quotation.strip()
    if not wanted:
        return None
    places = find_quotation_places(text, wanted, gap) if fuzzy and _is_long_enough(wanted) else _remove_literally(text, wanted)
    if not places:
        return None
    return _cut_places(text, places)


def _is_long_enough(quotation: str) -> bool:
    return len(_locate_words(quotation)) >= LEAST_WORDS and len(quotation) >= LEAST_CHARS


def _remove_literally(text: str, wanted: str) -> list[tuple[int, int]]:
    found, at = [], text.find(wanted)
    while at >= 0:
        found.append((at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return found


def find_quotation_places(text: str, quotation: str, gap: int) -> list[tuple[int, int]]:
    """Find where the words of a quotation stand in order, as (first, one past the last) character.

    Of places that overlap the first is taken.
    """
    wanted = _locate_words(quotation)
    starts, ends, at = _find_occurrences(text, wanted)
    found: list[tuple[int, int]] = []
    steps, free = 0, 0
    for first in at[wanted[0]] if all(at[word] for word in wanted) else ():
        if starts[first] < free:
            continue
        last, taken = _follow_words(starts, ends, at, wanted, first, gap)
        steps += taken
        if last is not None:
            free = ends[last]
            found.append((starts[_find_latest_start(at, wanted, last)], free))
        if steps > _MOST_STEPS:
            return []
    return found


def _locate_words(text: str) -> list[str]:
    return [found[1].casefold() for found in _WORD.finditer(text) if found[1]]


_WordPlaces = dict[str, list[int]]
"""Word -> indices of its occurrences."""


def _find_occurrences(text: str, wanted: Sequence[str]) -> tuple[list[int], list[int], _WordPlaces]:
    """Where the wanted words stand in a text: first characters, ends, and which of them are which word's."""
    at: _WordPlaces = {word: [] for word in wanted}
    starts: list[int] = []
    ends: list[int] = []
    for found in _WORD.finditer(text):
        if found[1] and (places := at.get(found[1].casefold())) is not None:
            places.append(len(starts))
            starts.append(found.start())
            ends.append(found.end())
    return starts, ends, at


def _follow_words(
    starts: Sequence[int], ends: Sequence[int], at: _WordPlaces, wanted: Sequence[str], first: int, gap: int
) -> tuple[int | None, int]:
    """The last occurrence of the place that begins here, and the steps it took; None where it breaks off.

    Of several occurrences of the next word the nearest is taken.
    """
    current = first
    for step, word in enumerate(wanted[1:], 1):
        candidates = at[word]
        place = bisect_left(candidates, current + 1)
        if place == len(candidates) or starts[candidates[place]] - ends[current] > gap:
            return None, step
        current = candidates[place]
    return current, len(wanted)


def _find_latest_start(at: _WordPlaces, wanted: Sequence[str], last: int) -> int:
    """The first word of the shortest place that ends here: a first word may stand there twice."""
    current = last
    for word in reversed(wanted[:-1]):
        current = at[word][bisect_left(at[word], current) - 1]
    return current


def _cut_places(text: str, places: Sequence[tuple[int, int]]) -> str:
    kept, end = [], 0
    for first, last in places:
        kept.append(text[end:first])
        end = last
    return "".join([*kept, text[end:]])
