"""Finds a folded text literally: where in an output the words of a goal stand, however they were laid out."""

from __future__ import annotations

import re
from functools import lru_cache

# Between two words anything may stand that YAML, JSON or quoting puts there: escapes, quotes, line breaks.
_BETWEEN = r"(?:\\[nrtNLP]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|[\W_])*?"
_WORD_PATTERN = re.compile(r"[0-9A-Za-z]+")
_OPEN, _CLOSE = "<INFORMATION>", "</INFORMATION>"


@lru_cache(maxsize=512)
def words_pattern(text: str) -> re.Pattern[str]:
    """Matches the words of a text in order, with any layout between them and closing punctuation after."""
    words = [re.escape(word) for word in _WORD_PATTERN.findall(text)]
    return re.compile(_BETWEEN.join(words) + r"[.!?]?", re.IGNORECASE) if words else re.compile(r"(?!)")


def find_instruction_spans(text: str, goal: str) -> list[str]:
    """Literal pieces of a text that hold a goal, each with the marks that frame it.

    Args:
        text: A tool output.
        goal: An injection goal, in its own wording.

    Returns:
        Substrings of `text`, in order of place; the whole text if the goal's words are not found in it as
        they are (an encoded payload).
    """
    places = [_widen_to_frame(text, found.start(), found.end()) for found in words_pattern(goal).finditer(text)]
    return [text[start:end] for start, end in places] or [text]


def _widen_to_frame(text: str, start: int, end: int) -> tuple[int, int]:
    """The span widened to the `<INFORMATION>` block around it, if it stands in one."""
    opened = text.rfind(_OPEN, 0, start)
    if opened >= 0 and text.find(_CLOSE, opened, start) < 0:
        closed = text.find(_CLOSE, end)
        return opened, closed + len(_CLOSE) if closed >= 0 else end
    return start, end
