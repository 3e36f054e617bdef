"""`marked`: where an injection stands in a text, through every folding a formatter may have done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agentsys.analysis.html_report.text_store import Segments
from agentsys.base.payload_lines import INVISIBLE, find_payload_lines, squeeze

_DROPPED = re.compile(r"\\[nrt]|[\s'\"\\]")
"""What `squeeze` drops of what can be seen, one piece at a time."""

_SHORTEST = 8
"""Squeezed characters of an injection that is short as a whole: fewer would be found everywhere."""


def needles(injections: Iterable[str]) -> tuple[str, ...]:
    """List the texts to look for: each injection whole, then line by line, squeezed; the longest first.

    Args:
        injections: Texts as the attack wrote them. Lines too short to tell from benign text are left out
            (see `agentsys.base.payload_lines`), so that they are marked only as part of the whole.
    """
    texts = [text for text in injections if text.strip()]
    lines = {form for line in find_payload_lines(texts) for form in line}
    wholes = {squeeze(text) for text in texts}
    forms = (form for form in wholes | lines if len(form) >= _SHORTEST)
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def marked(text: str, sought: Iterable[str]) -> Segments:
    """Cuts a text into plain and marked pieces; joined, they are the text again."""
    squeezed = squeeze(text)
    found = [place for form in sought for place in _places(squeezed, form)]
    if not found:
        return (text,)
    kept = _kept_positions(text)
    pieces: list[str] = []
    end = 0
    for first, last in _merged(found):
        pieces += [text[end : kept[first]], text[kept[first] : kept[last - 1] + 1]]
        end = kept[last - 1] + 1
    return (*pieces, text[end:])


def _places(squeezed: str, form: str) -> Iterator[tuple[int, int]]:
    start = squeezed.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = squeezed.find(form, start + len(form))


def _merged(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping and adjoining places as one, in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(places):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _kept_positions(text: str) -> list[int]:
    """For every character of the squeezed text, where it stands in the text."""
    kept: list[int] = []
    end = 0
    for dropped in _DROPPED.finditer(text):
        kept.extend(range(end, dropped.start()))
        end = dropped.end()
    kept.extend(range(end, len(text)))
    # What is invisible goes last, as it does in squeezing: a blank between two of them does not part them.
    for run in reversed([*INVISIBLE.finditer("".join(text[place] for place in kept))]):
        del kept[run.start() : run.end()]
    return kept
