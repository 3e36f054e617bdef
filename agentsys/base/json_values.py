"""Walk through nested data, and encode whatever models and tools produced as JSON that every reader can read."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
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
    """Convert a value that JSON cannot hold: models to dicts, all else to text."""
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
    """Convert a model, dataclass, mapping or list, part by part; any other object becomes its text."""
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


MAX_NESTING = 50
"""Levels of a tool's value, or of a text that is read as JSON; what is deeper is no data that anybody wrote."""
_MAX_NODES = 50_000
_MAX_CHARS = 4_000_000
_PLAIN_LEAVES = (bool, float, date, time, timedelta, Enum, bytes, type(None))


def is_deeper_than(value: object, most: int = MAX_NESTING) -> bool:
    """True if data is nested in more levels than so many, or holds itself, or has too many parts to be looked at."""
    return _find_oddity(value, most, lambda leaf: True)


def bound_value(value: Any) -> Any:
    """A tool's value for code that walks through it: itself, or plain data in its place.

    Replaced is a value that holds itself, is nested too deeply, is too large, or holds an object of which nobody
    knows what is inside: what is too deep or too much becomes a remark, an unknown object its text.
    """
    if not _find_oddity(value, MAX_NESTING, _is_plain_leaf):
        return value
    left = _MAX_NODES

    def copy(node: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_NESTING:
            return "(nested too deeply)" if left >= 0 else "(too large)"
        if is_dataclass(node) and not isinstance(node, type):
            node = {field.name: getattr(node, field.name, None) for field in fields(node)}
        if isinstance(node, BaseModel):
            node = dict(node)
        if isinstance(node, Mapping):
            pairs = itertools.islice(node.items(), max(left, 0) + 1)
            return {_copy_leaf(key): copy(item, depth + 1) for key, item in pairs}
        if isinstance(node, list | tuple | set | frozenset):
            return [copy(item, depth + 1) for item in itertools.islice(node, max(left, 0) + 1)]
        return _copy_leaf(node)

    return copy(value, 0)


def _find_oddity(value: object, most: int, is_plain: Callable[[object], bool]) -> bool:
    """True if a value holds something that is not plain, is nested too deeply, or has too many parts."""
    waiting, nodes = [(value, 0)], 0
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > most or nodes > _MAX_NODES:
            return True
        inside: Iterable[object] = ()
        if isinstance(node, BaseModel):
            inside = node.__dict__.values()
        elif isinstance(node, dict):
            inside = node.values()
            if not all(isinstance(key, str) or is_plain(key) for key in node):
                return True
        elif isinstance(node, list | tuple | set | frozenset):
            inside = node
        elif not is_plain(node):
            return True
        waiting.extend((child, depth + 1) for child in inside)
    return False


def _is_plain_leaf(leaf: object) -> bool:
    if isinstance(leaf, str):
        return len(leaf) <= _MAX_CHARS and (leaf.isascii() or _is_encodable(leaf))
    if isinstance(leaf, int):
        return leaf.bit_length() <= _MAX_INT_BITS
    return isinstance(leaf, _PLAIN_LEAVES)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _copy_leaf(leaf: object) -> Any:
    if _is_plain_leaf(leaf):
        return leaf
    return to_plain_data(leaf if isinstance(leaf, int) else _to_text(leaf)[:_MAX_CHARS])


def read_json_data(text: str) -> Any:
    """The object or list that a text is as a whole, in bounds; None for any other text."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _MAX_CHARS:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return None if is_deeper_than(data) else data


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
