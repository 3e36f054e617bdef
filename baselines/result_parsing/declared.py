"""The declared data and what was extracted, as far as both are JSON: for the record and for ablations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_LONGEST_FLAGGED = 100
"""Characters of a flagged value in the record."""


@dataclass(frozen=True)
class Expectation:
    """What a model said it expects back."""

    text: str
    """Its words."""
    types: Mapping[str, str]
    """Name -> declared type, as far as its words are the JSON asked for."""
    free: tuple[str, ...] = ()
    """Names of texts of any form and length: an instruction fits into them."""


def read_declaration(text: str) -> Expectation:
    """Read a declaration; whatever it is, its words are kept."""
    entries = read_json_text(text)
    named = [
        entry
        for entry in (entries if isinstance(entries, list) else [entries])
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]
    types = {entry["name"]: str(entry.get("type", "")).casefold() for entry in named}
    free = [
        entry["name"]
        for entry in named
        if types[entry["name"]] == "string" and not entry.get("format") and not entry.get("limits")
    ]
    return Expectation(text, types, tuple(free))


def read_json_text(text: str) -> Any:
    """The JSON that a text is, a fence around it aside; None for any other text."""
    fenced = _FENCE.match(text.strip())
    try:
        return json.loads(fenced[1] if fenced is not None else text, strict=False)
    except (ValueError, RecursionError):
        return None


def find_made_up(extracted: str, raw: str) -> list[str]:
    """The values of an extraction that do not stand in the result, layout and number format aside."""
    value = read_json_text(extracted)
    if value is None:
        return []
    hay = _fold_text(raw)
    return [str(leaf)[:_LONGEST_FLAGGED] for leaf in _iterate_leaves(value) if _fold_text(str(leaf)) not in hay]


def keep_leaves(extracted: str, keep: Callable[[Any], bool]) -> str:
    """An extraction with null in place of values that are not kept; as it is where it is no JSON."""
    value = read_json_text(extracted)
    return extracted if value is None else json.dumps(_keep_leaves_in(value, keep), ensure_ascii=False)


def build_presence_test(raw: str) -> Callable[[Any], bool]:
    """Give the test whether a value stands in a result."""
    hay = _fold_text(raw)
    return lambda leaf: leaf is None or isinstance(leaf, bool) or _fold_text(str(leaf)) in hay


def keep_declared_types(extracted: str, expected: Expectation) -> tuple[str, list[str]] | None:
    """An extraction less values of another type than declared, and their names; None if it is no object."""
    value = read_json_text(extracted)
    if not isinstance(value, dict):
        return None
    wrong = [
        name
        for name, one in value.items()
        if one is not None and (fits := _TYPES.get(expected.types.get(name, ""))) and not fits(one)
    ]
    left = {name: None if name in wrong else one for name, one in value.items()}
    return json.dumps(left, ensure_ascii=False), wrong


def _iterate_leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _iterate_leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _iterate_leaves(item)]
    return [] if value is None or isinstance(value, bool) else [value]


def _keep_leaves_in(value: Any, keep: Callable[[Any], bool]) -> Any:
    if isinstance(value, dict):
        return {name: _keep_leaves_in(item, keep) for name, item in value.items()}
    if isinstance(value, list):
        return [_keep_leaves_in(item, keep) for item in value]
    return value if keep(value) else None


_NO_CENTS = re.compile(r"(\d)\.0+\b")
_MARKS = re.compile(r"[\s\"'`\\]+")


def _fold_text(text: str) -> str:
    return _MARKS.sub(" ", _NO_CENTS.sub(r"\1", text)).casefold().strip()
