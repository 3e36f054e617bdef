"""Cuts the sentences that give instructions out of a text and leaves the others as they are."""

from __future__ import annotations

import re

from baselines.middleware.risk.reading import sightings

REMOVED = "[removed]"
"""Stands where sentences were cut."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?!\s)[^.!?\n]*)*(?:[.!?]+|\n+|\Z)[ \t]*")


def without_instructions(text: str) -> str:
    """The text without the sentences, or lines, that show a pattern by themselves. Layout stays."""
    parts: list[str] = []
    for sentence in _SENTENCE.findall(text):
        if not sentence or not sightings(sentence):
            parts.append(sentence)
            continue
        ending = sentence[len(sentence.rstrip()) :]
        if parts and parts[-1].rstrip() == REMOVED:
            parts[-1] = REMOVED + ending
        else:
            indent = sentence[: len(sentence) - len(sentence.lstrip())]
            parts.append(indent + REMOVED + ending)
    return "".join(parts)
