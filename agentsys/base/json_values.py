"""Walk through nested data, and encode whatever models and tools produced as JSON that every reader can read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from typing import Any

import orjson
from pydantic import BaseModel

MAX_DEPTH = 100
"""Levels of nesting that are kept of a value that orjson refuses; readers' own limits begin at 250."""
_MAX_INT_BITS = 996
"""Of a whole number written as such: what is wider is no finite number to readers that know floats only."""


def to_json_bytes(value: object, *, indent: bool = False) -> bytes:
    """A value as JSON. There is none that cannot be written.

    What JSON or its readers have no form for is replaced, see `to_plain_data`; everything else is written as
    it is, and fast. Controls that steer a terminal are escaped, so that a record can be printed as it lies.
    """
    try:
        data = orjson.dumps(value, default=_to_json_default, option=orjson.OPT_INDENT_2 if indent else None)
    except (TypeError, RecursionError):  # too wide, too deep, half a surrogate pair, a key that is no text
        data = json.dumps(to_plain_data(value), indent=2 if indent else None, ensure_ascii=False).encode()
    return _CONTROL.sub(lambda found: b"\\u00%02x" % found[0][-1], data) if b"\xc2" in data else data


_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")
"""U+0080 to U+009F in UTF-8, U+009B above all, which is ESC and [ in one; JSON demands no escape for them."""


def _to_json_default(value: object) -> object:
    """What an encoder does not know, as what it knows: models as dicts, the rest as text."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return _to_text(value)


def to_plain_data(value: object, depth: int = 0) -> Any:
    r"""A copy as plain data that every JSON reader takes.

    Lone surrogates are spelled out (`\udc80`), numbers that are none become null, whole numbers that no
    float can hold and values below `MAX_DEPTH` levels become a remark in parentheses, other types text.
    """
    if isinstance(value, Enum):
        return to_plain_data(value.value, depth)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value) if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        bits = value.bit_length()
        return int(value) if bits <= _MAX_INT_BITS else f"(a whole number of {bits} bits)"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= MAX_DEPTH:
        return "(nested too deeply to be stored)"
    return _convert_container(value, depth + 1)


def _convert_container(value: object, depth: int) -> Any:
    if isinstance(value, BaseModel):
        value = dict(value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {to_plain_data(str(key)): to_plain_data(item, depth) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain_data(item, depth) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    return to_plain_data(_to_text(value))


def _to_text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - anybody's object: what it cannot say must not cost the case
        return f"({type(value).__name__} without a text)"


def list_scalars(value: object) -> list[object]:
    """The scalars inside a JSON value, in order."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in list_scalars(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in list_scalars(item)]
    return [value]


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested data with each value changed that is no object and no list; keys stay."""
    if isinstance(value, Mapping):
        return {key: map_leaves(item, change) for key, item in value.items()}
    return [map_leaves(item, change) for item in value] if isinstance(value, list | tuple) else change(value)


def map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Nested data with every text in it changed; keys stay."""
    return map_leaves(value, lambda leaf: change(leaf) if isinstance(leaf, str) else leaf)
