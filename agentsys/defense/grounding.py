"""`Request`: the user's request, and which words of a worker's call stand in it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from agentsys.defense.reading.closed_formats import WORDLESS

_STATUS_FIELD = "status"
"""The field that a call which only acts declares; the prompts name it."""


class UserRequest:
    """The user's request as a measure of what a worker may have from elsewhere."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded = _fold_words(text)

    def contains(self, text: str) -> bool:
        """Whether a text stands in the request as whole words, whatever the case and white space."""
        wanted = _fold_words(text)
        if not wanted:
            return True
        starts = r"(?<!\w)" if wanted[0].isalnum() else ""
        ends = r"(?!\w)" if wanted[-1].isalnum() else ""
        return re.search(starts + re.escape(wanted) + ends, self._folded) is not None

    def mask_value(self, value: Any) -> Any:
        """A value without strings that are not in the request, dates and numbers aside: they say nothing."""
        if isinstance(value, Mapping):
            return {
                key if self.contains(str(key)) else f"key_{place}": self.mask_value(child)
                for place, (key, child) in enumerate(value.items(), 1)
            }
        if isinstance(value, list | tuple | set):
            return [self.mask_value(item) for item in value]
        if value is None or isinstance(value, bool | int | float | datetime.date):
            return value
        text = str(value)
        if WORDLESS.fullmatch(text) or self.contains(text):
            return text
        return f"<text that is not in the request, {len(text)} characters>"

    def mask_fields(self, node: Any) -> Any:
        """An intent's types, its fields named only where the request has their words."""
        if isinstance(node, Mapping):
            return {
                key
                if key == _STATUS_FIELD or self.contains(key.replace("_", " "))
                else f"field_{place}": self.mask_fields(child)
                for place, (key, child) in enumerate(node.items(), 1)
            }
        return [self.mask_fields(item) for item in node] if isinstance(node, list) else node


def _fold_words(text: str) -> str:
    return " ".join(text.casefold().split())
