"""`same_text`: whether two texts of one tool differ by more than time and chance."""

from __future__ import annotations

import re

from agentsys.payload_lines import squeeze

_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+")
"""A date with fractions of a second: taken from a clock, as no date in the benchmark's data has them."""
_LIBRARY = re.compile(r"errors\.pydantic\.dev/[\d.]+/")
"""Errors of wrong arguments name pydantic's version."""


def same_text(recorded: str, today: str) -> bool:
    """Whether a recorded text is what the tool returns today.

    Stamps of the clock, the library's version in an error, line breaks and quoting are passed over. So is
    the order of lines: an event's participants are a set. A recorded text with today's inside it counts as
    the same, since some defenses put marks around what a tool returns.
    """
    first, second = (_LIBRARY.sub("", _STAMP.sub("", text)) for text in (recorded, today))
    if first == second or squeeze(second) in squeeze(first):
        return True
    return sorted(first.splitlines()) == sorted(second.splitlines())


def stamps(text: str) -> list[str]:
    """The clock's stamps in a text, in order."""
    return _STAMP.findall(text)
