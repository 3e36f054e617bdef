"""The forms in which language models write a type, and what they stand for in an intent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_STRINGS = (
    "string str text varchar char date datetime date-time timestamp time email e-mail url uri link uuid id"
    " identifier name enum literal path phone iban markdown html any unknown"
)
_TYPE_WORDS: Mapping[str, str] = {
    **dict.fromkeys(_STRINGS.split(), "string"),
    **dict.fromkeys(
        ["number", "num", "numeric", "float", "double", "decimal", "real", "percentage", "currency", "money"],
        "number",
    ),
    **dict.fromkeys(["integer", "int", "long", "whole"], "integer"),
    **dict.fromkeys(["boolean", "bool", "flag"], "boolean"),
}
_NULL_WORDS = frozenset({"null", "none", "undefined", "nil"})
_LISTS = frozenset({"list", "array", "set", "sequence", "tuple"})

_LIST_TYPE = re.compile(
    r"\s*(?:(?:typing\.)?(?:list|array|set|sequence)\s*[\[<(]\s*(?P<inside>.+?)\s*[\])>]"
    r"|(?P<before>[\w-]+)\s*\[\s*\]"
    r"|(?:an?\s+)?(?:list|array)\s+of\s+(?P<of>[\w-]+?)s?)\s*",
    re.IGNORECASE,
)
_OPTIONAL = re.compile(r"\s*(?:typing\.)?(?:optional|nullable)\s*[\[<(]\s*(.+?)\s*[\])>]\s*", re.IGNORECASE)
_ALTERNATIVES = re.compile(r"\s*\|\s*|\s+or\s+|\s*/\s*", re.IGNORECASE)
_FIRST_WORD = re.compile(r"\s*<?([\w-]+)>?\??\s*(?:[:(,;–—-].*|\s(?:in|as|of|for|with)\s.*)?", re.DOTALL)

_KEYWORDS = frozenset(
    [
        "type",
        "description",
        "title",
        "items",
        "properties",
        "required",
        "enum",
        "format",
        "anyOf",
        "oneOf",
        "nullable",
        "default",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "examples",
        "example",
        "additionalProperties",
        "const",
        "minItems",
        "maxItems",
    ]
)


def parse_type_name(word: str) -> str | None:
    """The grammar's name of a type that a model wrote; None if it is none.

    Understood are other languages' names ("str", "Float"), kinds of text ("date", "email"), optional and
    alternative types ("string | null", "Optional[int]"), and a type before an explanation ("number (in
    euros)"). Of several types the first that is not null counts.
    """
    inner = _OPTIONAL.fullmatch(word)
    if inner is not None:
        return parse_type_name(inner[1])
    names = [_TYPE_WORDS.get(first) for part in _ALTERNATIVES.split(word) if (first := _parse_first_word(part)) not in _NULL_WORDS]
    return names[0] if names else ("string" if word.strip() else None)


def _parse_first_word(part: str) -> str:
    found = _FIRST_WORD.fullmatch(part)
    return found[1].casefold() if found is not None else part.strip().casefold()


def parse_list_type(word: str) -> str | None:
    """The element's type where a model wrote a list as a word ("list[string]", "array"); else None."""
    if word.strip().casefold() in _LISTS:
        return "string"
    found = _LIST_TYPE.fullmatch(word)
    return next((part for part in found.groups() if part), None) if found is not None else None


def translate_schema(value: object) -> object:
    """Translate a piece of JSON Schema into the grammar's form; any other value stays as it is.

    An object counts as JSON Schema where it has nothing but its keywords and a `type` (or alternatives): so
    `{"type": "string"}` inside an intent is a string, and not an object with a field named `type`.
    """
    if not isinstance(value, dict) or not value or not value.keys() <= _KEYWORDS:
        return value
    for key in ("anyOf", "oneOf"):
        if isinstance(value.get(key), list):
            return _find_first_type(value[key])
    kind = value.get("type")
    if isinstance(kind, list):
        kind = _find_first_type(kind)
    others = [child for key, child in value.items() if key not in ("type", "format")]
    if others and all(isinstance(child, str) and child.strip().casefold() in _TYPE_WORDS for child in others):
        return value  # Fields with names like keywords, as in {"title": "string", "type": "string"}.
    if not isinstance(kind, str):
        return "string" if isinstance(value.get("enum"), list) else value
    return _translate_type(kind.strip().casefold(), value)


def _translate_type(kind: str, schema: Mapping[str, Any]) -> object:
    if kind == "object":
        return schema.get("properties", {})
    if kind in _LISTS:
        return [schema.get("items", "string")]
    return kind


def _find_first_type(items: list[Any]) -> object:
    """The first alternative that is not null."""
    nothing = (None, *_NULL_WORDS, {"type": "null"})
    return next((translate_schema(item) for item in items if item not in nothing), "string")
