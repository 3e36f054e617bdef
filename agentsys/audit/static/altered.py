"""`altered`: an argument's value, replaced by others that ask for something else."""

from __future__ import annotations

import re
from typing import Any

STRANGER = "someone.else@example.com"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def altered(value: Any) -> list[list[Any]]:
    """Ways to get an argument wrong.

    Args:
        value: What the ground truth gives.

    Returns:
        One entry per way (a list can be wrong in each of its items); an entry holds values to
        try in order, for a tool may refuse the first ones. Empty for what we cannot alter.
    """
    if isinstance(value, bool):
        return [[not value]]
    if isinstance(value, int | float):
        return [[value + 1]]
    if isinstance(value, str):
        return [[other for other in _other_texts(value) if other != value]]
    if isinstance(value, list):
        return [
            [[*value[:place], other, *value[place + 1 :]] for other in options]
            for place, item in enumerate(value)
            for options in altered(item)
        ]
    return []


def _other_texts(text: str) -> list[str]:
    if "@" in text:
        return [STRANGER]
    if _DATE.match(text):
        return [f"19{text[2:]}"]
    if text.isascii() and text.isdecimal():
        return [str(int(text) + 1), "0"]
    # The names are Slack's users and channels, the letter a permission: tools refuse what does not exist.
    return ["Someone Else", "Bob", "Alice", "random", "general", "r"]
