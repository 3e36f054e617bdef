"""Formats that hold no sentence: what is of one can be passed on by code without being read."""

from __future__ import annotations

import datetime
import re
from enum import Enum

_MAIL = r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}"
_IBAN = r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{10,30}"
_PAGE = r"(?:https?://)?(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,10}(?:/[\w.~%-]{0,40}){0,4}"
_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?"
_NUMBER = r"[+-]?\d{1,15}(?:\.\d{1,15})?"
_ID = r"\w{1,40}"

ADDRESS = re.compile("|".join((_MAIL, _IBAN, _PAGE)))
"""Of a person, an account or a page."""
WORDLESS = re.compile("|".join((_DATE, _NUMBER)))
"""A date, a time or a number: nothing in it can be read as words."""
_CLOSED = re.compile("|".join((_MAIL, _IBAN, _PAGE, _DATE, _NUMBER, _ID)))


def has_closed_format(leaf: object) -> bool:
    """Whether a leaf is a number, a date, null, an enumeration's member or a string of a closed format."""
    if leaf is None or isinstance(leaf, bool | int | float | datetime.date | datetime.time | Enum):
        return True
    return isinstance(leaf, str) and _CLOSED.fullmatch(leaf) is not None
