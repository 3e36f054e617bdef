"""`UserRequest`: tells the words of the user's request from words that a tool's output may have brought.

A validator is shown only words of the request and values of a closed format (a date, a number, an address): no
sentence fits into those.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

_MAIL = r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}"
_IBAN = r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{10,30}"
_PAGE = r"(?:https?://)?(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,10}(?:/[\w.~%-]{0,40}){0,4}"
_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?"
_NUMBER = r"[+-]?\d{1,15}(?:\.\d{1,15})?"
_ID = r"\w{1,40}"

WORDLESS = re.compile("|".join((_DATE, _NUMBER)))
"""A date, a time or a number, which cannot be read as words."""
_CLOSED = re.compile("|".join((_MAIL, _IBAN, _PAGE, _DATE, _NUMBER, _ID)))
_SHORT_OR_ANY_CASE = re.compile("|".join((_MAIL, _NUMBER)))
_MIN_CHARS = 3
"""Shorter texts occur in any request by chance."""


def has_closed_format(leaf: object) -> bool:
    """True for a number, a date, null, an enumeration's member or a string of a closed format."""
    if leaf is None or isinstance(leaf, bool | int | float | datetime.date | datetime.time | Enum):
        return True
    return isinstance(leaf, str) and _CLOSED.fullmatch(leaf) is not None


_STATUS_FIELD = "status"
"""The field that acting calls declare; the prompts name it."""


class UserRequest:
    """The user's request, used to mask the words of a worker that it does not contain."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded, self._words = _fold_words(text), " ".join(text.split())

    def contains(self, text: str) -> bool:
        """True if the request contains the text as whole words, ignoring case and white space."""
        return _stands_in(_fold_words(text), self._folded)

    def says(self, leaf: object) -> bool:
        """True if the request contains a leaf as whole words, in the same case, with at least three characters.

        Numbers and mail addresses may be shorter, or written in another case.
        """
        text = str(leaf)
        if _SHORT_OR_ANY_CASE.fullmatch(text):
            return self.contains(text)
        wanted = " ".join(text.split())
        return len(wanted) >= _MIN_CHARS and _stands_in(wanted, self._words)

    def mask_value(self, value: Any) -> Any:
        """Replace the strings of a value that are not in the request; dates and numbers stay."""
        if isinstance(value, Mapping):
            return {
                key if self.contains(str(key)) else f"key_{number}": self.mask_value(child)
                for number, (key, child) in enumerate(value.items(), 1)
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
        """Replace the field names of an intent whose words are not in the request."""
        if isinstance(node, Mapping):
            return {
                key
                if key == _STATUS_FIELD or self.contains(key.replace("_", " "))
                else f"field_{number}": self.mask_fields(child)
                for number, (key, child) in enumerate(node.items(), 1)
            }
        return [self.mask_fields(item) for item in node] if isinstance(node, list) else node


def _fold_words(text: str) -> str:
    return " ".join(text.casefold().split())


def _stands_in(wanted: str, text: str) -> bool:
    """True if `text` contains `wanted` between word boundaries."""
    # No regular expression: both texts may be hostile, and compiling one of 500 kB takes a second.
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        splits_word = (wanted[:1].isalnum() and _is_in_word(text[at - 1 : at])) or (
            wanted[-1:].isalnum() and _is_in_word(text[end : end + 1])
        )
        if not splits_word:
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_in_word(character: str) -> bool:
    return character.isalnum() or character == "_"
