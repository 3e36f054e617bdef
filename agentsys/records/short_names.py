"""Names for tables: long ones cut, no two alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from agentsys.records.case_row import CaseRow

MAX_NAME_CHARS = 60
"""Characters of a name in tables."""
_DIGEST = 8
_NAMES = (
    "benchmark",
    "version",
    "suite",
    "user_task_id",
    "injection_task_id",
    "attack",
    "model",
    "apart",
    "defense",
)


def shorten_name(name: str) -> str:
    """A name of at most `LONGEST` characters; a longer one ends in a digest of the whole."""
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME_CHARS - _DIGEST - 1]}…{digest}"


def shorten_names(cases: Iterable[CaseRow]) -> tuple[CaseRow, ...]:
    """The cases as tables name them; what is written for other programs has the whole names."""
    listed = tuple(cases)
    for name in _NAMES:  # one column at a time: hardly any has a long one
        long = {value for value in set(map(attrgetter(name), listed)) if value and len(value) > MAX_NAME_CHARS}
        if long:
            listed = tuple(_shorten_row(case, name) if getattr(case, name) in long else case for case in listed)
    return listed


def _shorten_row(case: CaseRow, name: str) -> CaseRow:
    changed: dict[str, Any] = {name: shorten_name(getattr(case, name))}
    return replace(case, **changed)
