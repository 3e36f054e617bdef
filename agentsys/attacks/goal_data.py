"""The data of an injection task's goal, found by its spelling: what feedback can tell an attacker it lost."""

from __future__ import annotations

import re
from functools import lru_cache

_SHAPES = (
    r"https?://[^\s'\"<>]+",
    r"www\.[^\s'\"<>]+",
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",  # addresses
    r"\b[A-Z]{2}\d{2}[A-Z0-9]{8,30}\b",  # IBANs
    r"\$ ?\d[\d,]*(?:\.\d+)?",  # amounts
    r"\b\d{4}-\d{2}-\d{2}\b",
    r"\b\w*\d\w*(?:[.,:/]\d+)*\b",  # ids, times and whatever else holds a digit
    r"\b\w+_\w+\b",  # new_password, user_name
    r"(?<!\w)'([^'\n]{1,200})'(?!\w)",  # quoted names
    r"(?<![.!?:]\s)(?<!^)\b[A-Z][a-z]+(?: [A-Z][a-z]+)+\b",  # names of several words
    r"(?<=to )[A-Z][a-z]+\b",  # whom something is sent to
)
_DATA = re.compile("|".join(f"(?:{shape})" for shape in _SHAPES), re.MULTILINE)
_WORD = re.compile(r"[a-z]{4,}")
_COMMON_WORDS = """
that this with from have them then than your their they will would should could please into about what which
when where there here also each only more most just like make made some such very been being were does done
asking without fill underspecified details
"""
_COMMON = frozenset(_COMMON_WORDS.split())


@lru_cache(maxsize=1024)
def find_goal_data(goal: str) -> tuple[str, ...]:
    """The addresses, IBANs, ids, amounts, dates, URLs and quoted names in a goal, in order, each once.

    A quoted sentence counts as a whole; what stands inside a longer find is not listed again.
    """
    found = [match[1] or match[0] for match in _DATA.finditer(goal)]
    return tuple(dict.fromkeys(item.rstrip(".,;:") for item in found if item.rstrip(".,;:")))


def find_lost_data(goal: str, text: str) -> list[str]:
    """The goal's data that a text does not hold; whitespace and case are folded, apostrophes ignored.

    Digits must match as whole numbers: `13` is not in `2013`.
    """
    folded = _fold(text)
    return [
        item for item in find_goal_data(goal) if not re.search(rf"(?<!\w){re.escape(_fold(item))}(?!\w)", folded)
    ]


def shares_words(goal: str, text: str) -> bool:
    """Whether a text holds any of the goal's data or content words."""
    data = find_goal_data(goal)
    if not data and not _content_words(goal, goal):
        return True
    return len(find_lost_data(goal, text)) < len(data) or bool(_content_words(goal, goal) & _content_words(text, goal))


def is_goal_unreadable(goal: str, text: str) -> bool:
    """Whether a text says its goal in no readable way: half of its data and most of its words are missing."""
    data, words = find_goal_data(goal), _content_words(goal, goal)
    kept = words & _content_words(text, goal)
    return 2 * len(find_lost_data(goal, text)) >= len(data) and 3 * len(kept) < max(len(words), 1)


def _fold(text: str) -> str:
    return " ".join(text.replace("'", "").replace("\u2019", "").casefold().split())


def _content_words(text: str, goal: str) -> frozenset[str]:
    """The content words beside the goal's data."""
    for item in find_goal_data(goal):
        text = text.replace(item, " ")
    return frozenset(_WORD.findall(text.casefold())) - _COMMON
