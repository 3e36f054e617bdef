"""Arguments of a call as servers hand them on: an object, its text, the text of that, and slips of writing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agentsys.models.chat import JsonSchema, ModelError
from agentsys.models.providers.wire_parts import clean_json, parse_json
from agentsys.models.text_tools import iterate_json_values

_MENDED_CHARS = 20_000
"""Longest text that is read as anything but one JSON value."""


def read_arguments(raw: object, schema: JsonSchema | None) -> dict[str, Any] | None:
    """The arguments of a call; None where they cannot be read.

    Args:
        raw: What the wire has in their place. Blank, null and an empty list are no arguments.
        schema: The tool's. Slips are mended where the outcome fits it; None: nothing is mended.
    """
    value = raw
    for _ in range(2):  # some servers write the text of a text
        if isinstance(value, str):
            value = _parse_text(value, schema)
    if value is None or value == []:
        return {}
    return value if isinstance(value, dict) else None


_UNREADABLE = object()


def _parse_text(text: str, schema: JsonSchema | None) -> object:
    if not text.strip():
        return None
    try:
        return parse_json(text)
    except ModelError:
        pass
    if len(text) > _MENDED_CHARS:
        return _UNREADABLE
    try:
        return clean_json(_find_one_object(text, schema))
    except (ModelError, RecursionError):
        return _UNREADABLE


def _find_one_object(text: str, schema: JsonSchema | None) -> object:
    try:
        said = list(iterate_json_values(text))
    except ValueError:
        return _UNREADABLE if schema is None else _mend_slips(text, schema)
    told = [value for value in said if value != {}] or [{}]
    return told[0] if all(isinstance(value, dict) and value == told[0] for value in told) else _UNREADABLE


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SLIP_SIGNS = re.compile(r"[\s,'\"“”‘’`\[\]{}]+")
_DIGITS_APART = re.compile(r"\d\s*,\s*\d")


def _mend_slips(text: str, schema: JsonSchema) -> object:
    """The object of a text whose white space, commas, quotes or brackets are wrong, and nothing else is.

    A text that ends within a string or a number was broken off: what would stand there is not known.
    """
    if text.rstrip()[-1:] not in "}]\"'," or _count_quotes(text) % 2:
        return _UNREADABLE
    import json_repair  # only where something is to be mended

    value = json_repair.loads(text)
    if not isinstance(value, dict):
        return _UNREADABLE
    written = json.dumps(value, ensure_ascii=False)
    same = (
        _keep_content(text) == _keep_content(written)
        # A quotation mark within a text, and a comma between digits, could be either.
        and text.count('\\"') == written.count('\\"')
        and len(_DIGITS_APART.findall(text)) == len(_DIGITS_APART.findall(written))
    )
    return value if same and _fits_schema(value, schema) else _UNREADABLE


def _count_quotes(text: str) -> int:
    plain = _ESCAPE.sub("", text)
    return plain.count('"') or plain.count("'")


def _keep_content(text: str) -> str:
    """A JSON text without the signs that may be mended, and with its escapes as what they stand for."""
    spelled = _ESCAPE.sub(
        lambda met: chr(int(met[1], 16)) if met[1] else _PLAIN_ESCAPES.get(met[2], met[2]), text
    )
    return _SLIP_SIGNS.sub("", spelled)


def _fits_schema(value: dict[str, Any], schema: JsonSchema) -> bool:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    if not value.keys() <= schema.get("properties", {}).keys():
        return False
    # Patterns are left out, as nothing bounds their time; what a schema refers to is never fetched.
    kind = extend(Draft202012Validator, {"pattern": _pass_all, "patternProperties": _pass_all})
    try:
        return bool(kind(schema, registry=REGISTRY).is_valid(value))
    except (Unresolvable, RecursionError):
        return False


def _pass_all(*asked: Any) -> Iterator[Any]:
    return iter(())
