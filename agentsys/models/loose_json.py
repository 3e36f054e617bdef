"""JSON as language models write it: in fences, after prose, with raw line breaks and trailing commas.

For replies that can do no harm by being understood (which passages to cut, which tools only read).
What a worker returns is read by `agentsys.defense.gate`, which forgives less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from agentsys.base.json_values import map_texts, read_json_data

_MAX_BRACES = 50
"""Braces at which an object or a list is looked for."""
_BRACE = re.compile(r"[{\[]")
_NO_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9A-Fa-f]{4})')
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def find_json_values(text: str) -> Iterator[Any]:
    """The JSON objects and lists of a text, outermost first; then those of the text with slips mended."""
    yield from _find_loose_values(text)
    mended = _TRAILING_COMMA.sub(r"\1", _NO_ESCAPE.sub(r"\\\\", text))
    if mended != text:
        yield from _find_loose_values(mended)


def _find_loose_values(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(strict=False), 0
    for _ in range(_MAX_BRACES):
        brace = _BRACE.search(text, at)
        if brace is None:
            return
        try:
            value, at = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            at = brace.end()
            continue
        yield value


_WHOLE_JSON = re.compile(r"(\s*(?:```\w{0,10}\s)?\s*)([{\[].*[}\]])(\s*(?:```)?\s*)", re.DOTALL)


def map_json_text(text: str, change: Callable[[str], Any]) -> str | None:
    """A text that is one JSON object or list, perhaps in a fence, with every text in it changed; None for any other."""
    form = _WHOLE_JSON.fullmatch(text)
    data = None if form is None else read_json_data(form[2])
    if form is None or data is None:
        return None
    return f"{form[1]}{json.dumps(map_texts(data, change), ensure_ascii=False, default=str)}{form[3]}"


PROSE_BRACES = re.compile(r"\{[^{}\[\]\":]{0,200}\}")
"""Braces that hold words and no JSON, as in "the {name} asked for"."""
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+"?)|,(?=\s*+[}\]])', re.DOTALL)


def find_outer_objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text that stand in nothing else; for replies that could do harm if misread.

    An object that cannot be read ends the search: what stands inside it may be a quotation, and is not taken
    for what the model says. Braces in prose ("the {name} asked for") are passed over. Commas behind a last
    element are left out where nothing else is wrong.
    """
    objects = _scan_outer_objects(text)
    if not objects:
        mended = drop_trailing_commas(text)
        objects = _scan_outer_objects(mended) if mended != text else objects
    return objects


def drop_trailing_commas(text: str) -> str:
    """A text without commas behind a last element, from its first brace on.

    A quotation mark in the prose before that begins no string of the object.
    """
    prose, brace, rest = text.partition("{")
    return prose + brace + _STRING_OR_TRAILING_COMMA.sub(lambda met: met[1] or "", rest)


def _scan_outer_objects(text: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    objects: list[dict[str, Any]] = []
    at = text.find("{")
    for _ in range(_MAX_BRACES):
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            closed = PROSE_BRACES.match(text, at)
            if closed is None:
                break
            end = closed.end()
        else:
            objects.append(value)
        at = text.find("{", end)
    return objects


def find_object_with(text: str, keys: Collection[str]) -> dict[str, Any] | None:
    """The one object of a reply that has all of these keys; None if there is none, or two that differ."""
    matching = [value for value in find_outer_objects(text) if set(keys) <= value.keys()]
    return matching[0] if matching and all(value == matching[0] for value in matching) else None
