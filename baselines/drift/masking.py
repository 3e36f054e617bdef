"""Cutting detected spans out of a text, whatever white space or backslashes stand between their words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class Masked:
    """A text after cutting."""

    text: str
    matched: int
    """Places that were cut."""


def mask(text: str, spans: Iterable[str], *, strip_unmatched: bool) -> Masked:
    """The text without the spans; a space stands for each, and the ends are stripped.

    Args:
        text: A tool's result.
        spans: What to cut, in order; letter case counts, white space does not. A span without words puts a
            space at every place, as in the reference implementation: leave such spans out.
        strip_unmatched: Strip the ends even where a span is not found, as the reference does.
    """
    matched = 0
    for span in spans:
        cut, found = _without(text, span.split())
        matched += found
        text = cut.strip() if found or strip_unmatched else text
    return Masked(text, matched)


def _without(text: str, words: list[str]) -> tuple[str, int]:
    if not words:
        return _SPACE.subn(" ", text)
    pieces: list[str] = []
    end = found = 0
    pattern = re.compile(r"[\s\\]+".join(re.escape(word) for word in words))
    for match in pattern.finditer(text):
        # White space around a match is taken off by hand: as a part of the pattern it would make the search
        # take quadratic time on a long run of spaces.
        pieces.append(text[end : match.start()].rstrip())
        after = _SPACE.match(text, match.end())
        end = after.end() if after else match.end()
        found += 1
    return " ".join([*pieces, text[end:]]), found
