"""Cuts the sentences that give instructions out of a text and leaves the others as they are."""

from __future__ import annotations

import re

from baselines.middleware.risk.reading import sightings

REMOVED = "[removed]"
"""Stands where sentences were cut."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?!\s)[^.!?\n]*)*(?:[.!?]+|\n+|\Z)[ \t]*")


def without_instructions(text: str, *, between: bool = False) -> str:
    """The text without the sentences, or lines, that show a pattern by themselves. Layout stays.

    Args:
        text: Untrusted text.
        between: Whether what stands between the first and the last of them goes as well: the order itself is
            often put between two sentences that prepare it.
    """
    sentences = [sentence for sentence in _SENTENCE.findall(text) if sentence]
    shown = [bool(sightings(sentence)) for sentence in sentences]
    if between and any(shown):
        first, last = shown.index(True), len(shown) - shown[::-1].index(True)
        shown = [place in range(first, last) for place in range(len(shown))]
    parts: list[str] = []
    for sentence, goes in zip(sentences, shown, strict=True):
        if not goes:
            parts.append(sentence)
            continue
        ending = sentence[len(sentence.rstrip()) :]
        if parts and parts[-1].rstrip() == REMOVED:
            parts[-1] = REMOVED + ending
        else:
            indent = sentence[: len(sentence) - len(sentence.lstrip())]
            parts.append(indent + REMOVED + ending)
    return "".join(parts)
