"""`Request`: the user's request, and which words of a worker's call stand in it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from agentsys.defense.reading.closed_formats import WORDLESS

_ACTED = "status"
"""The field that a call which only acts declares; the prompts name it."""


class Request:
    """The user's request as a measure of what a worker may have from elsewhere."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded = _folded(text)

    def holds(self, text: str) -> bool:
        """Whether a text stands in the request as whole words, whatever the case and white space."""
        wanted = _folded(text)
        if not wanted:
            return True
        starts = r"(?<!\w)" if wanted[0].isalnum() else ""
        ends = r"(?!\w)" if wanted[-1].isalnum() else ""
        return re.search(starts + re.escape(wanted) + ends, self._folded) is not None

    def masked(self, value: Any) -> Any:
        """A value without strings that are not in the request, dates and numbers aside: they say nothing."""
        if isinstance(value, Mapping):
            return {
                key if self.holds(str(key)) else f"key_{place}": self.masked(child)
                for place, (key, child) in enumerate(value.items(), 1)
            }
        if isinstance(value, list | tuple | set):
            return [self.masked(item) for item in value]
        if value is None or isinstance(value, bool | int | float | datetime.date):
            return value
        text = str(value)
        if WORDLESS.fullmatch(text) or self.holds(text):
            return text
        return f"<text that is not in the request, {len(text)} characters>"

    def masked_fields(self, node: Any) -> Any:
        """An intent's types, its fields named only where the request has their words."""
        if isinstance(node, Mapping):
            return {
                key
                if key == _ACTED or self.holds(key.replace("_", " "))
                else f"field_{place}": self.masked_fields(child)
                for place, (key, child) in enumerate(node.items(), 1)
            }
        return [self.masked_fields(item) for item in node] if isinstance(node, list) else node


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
