"""Intents: the return value an agent declares before it sees anything.

Grammar: an intent is an object from field names (identifiers) to types. A type is `"string"`, `"number"`,
`"integer"` or `"boolean"`, an object of the same kind with at least one field, or a list of exactly one type. An
empty object means that nothing is to be returned. Models are asked for a list of fields,
`[{"field": "price", "type": "number"}]`, which is converted to an object. So are other forms that models write
(`"str"`, `"list[string]"`, JSON Schema, ...): the agent has seen no output yet, so leniency costs no safety.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from agentdojo.functions_runtime import Function
from pydantic import BaseModel

from agentsys.base.python_parser import literal_eval
from agentsys.errors import ConfigError
from agentsys.models.chat import JsonSchema, ToolSpec
from agentsys.models.pipeline_elements import describe_tool
from agentsys.models.tool_schema import COMBINATORS

_STRINGS = (
    "string str text varchar char date datetime date-time timestamp time email e-mail url uri link uuid id"
    " identifier name enum literal path phone iban markdown html any unknown"
    " object dict map json record struct"  # Without its fields: free text.
)
_NUMBERS = "number num numeric float double decimal real percentage currency money"
_TYPE_WORDS: Mapping[str, str] = {
    **dict.fromkeys(_STRINGS.split(), "string"),
    **dict.fromkeys(_NUMBERS.split(), "number"),
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

_SCHEMA_KEYWORDS = (
    "type description title items properties required enum format anyOf oneOf nullable default"
    " minimum maximum minLength maxLength pattern examples example additionalProperties const minItems"
    " maxItems"
)
_KEYWORDS = frozenset(_SCHEMA_KEYWORDS.split())
_OBJECT_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "description"})


def parse_type_name(word: str) -> str | None:
    """Translate a type that a model wrote to the grammar's name; None if it is no type.

    Accepts other languages' names ("str", "Float"), kinds of text ("date", "email"), optional and alternative types
    ("string | null", "Optional[int]"), and a type before an explanation ("number (in euros)"). Of several types the
    first that is not null counts.
    """
    inner = _OPTIONAL.fullmatch(word)
    if inner is not None:
        return parse_type_name(inner[1])
    names = [
        _TYPE_WORDS.get(first)
        for part in _ALTERNATIVES.split(word)
        if (first := _parse_first_word(part)) not in _NULL_WORDS
    ]
    return names[0] if names else ("string" if word.strip() else None)


def _parse_first_word(part: str) -> str:
    match = _FIRST_WORD.fullmatch(part)
    return match[1].casefold() if match is not None else part.strip().casefold()


def parse_list_type(word: str) -> str | None:
    """Return the element type of a list type written as a word ("list[string]", "array"); else None."""
    if word.strip().casefold() in _LISTS:
        return "string"
    match = _LIST_TYPE.fullmatch(word)
    return next((part for part in match.groups() if part), None) if match is not None else None


def translate_schema(value: object) -> object:
    """Translate a piece of JSON Schema into the grammar's form; any other value is returned unchanged.

    An object counts as JSON Schema if it has only schema keywords and a `type` (or alternatives): `{"type":
    "string"}` inside an intent is a string, and not an object with a field named `type`.
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
    kind = kind.strip().casefold()
    if kind == "object":
        return value.get("properties", {})
    return [value.get("items", "string")] if kind in _LISTS else kind


def _find_first_type(items: list[Any]) -> object:
    """Return the first alternative that is not null."""
    nothing = (None, *_NULL_WORDS, {"type": "null"})
    return next((translate_schema(item) for item in items if item not in nothing), "string")


Intent = Mapping[str, Any]
"""A value that `parse_intent` returned."""

INTENT_PARAMETER = "intent"
"""Name of the parameter that is added to every tool."""

RESERVED_FIELD = "error"
"""Field that no intent may declare at top level, where it would look like a failure."""

INTENT_SCHEMA: JsonSchema = {"type": "array", "items": {"type": "object"}, "minItems": 1}
"""Schema of the list form. Given an open object, models copy the schema as a value or leave it empty."""

MAX_NESTING = 8
"""Deepest nesting of an intent. Ours; it only bounds the recursion on hostile or broken declarations."""

_LONGEST = 20_000
_FIELD = re.compile(r"[A-Za-z_]\w{0,40}")
_BLANKS = re.compile(r"[\s\-./]+")

# Built once per tool, alive as long as the suite, so that provider adapters can recognise a tool list by the
# identity of its schemas.
_SCHEMAS: WeakKeyDictionary[type[BaseModel], JsonSchema] = WeakKeyDictionary()


class NoIntent(Exception):
    """The intent is missing or outside the grammar; the message says where and how."""


def parse_intent(value: object) -> Intent:
    """Parse the intent that an agent declared; a string that holds JSON is parsed first.

    Raises:
        NoIntent: If it is missing or outside the grammar.
    """
    if isinstance(value, str):
        value = _unquote(value)
    if value is None:
        raise NoIntent("the argument `intent` is missing")
    if isinstance(value, list):
        value = _read_field_list(value)
    if not isinstance(value, dict):
        raise NoIntent("`intent` must be an object from field names to types")
    if value.get("type") == "object" and value.keys() <= _OBJECT_KEYWORDS:
        value = value.get("properties", {})
    if not isinstance(value, dict) or not value:
        return {}
    try:
        fields = _parse_object(value, INTENT_PARAMETER, MAX_NESTING)
    except RecursionError:
        raise NoIntent("`intent` is nested too deeply") from None
    if RESERVED_FIELD in fields:
        raise NoIntent(f"`{INTENT_PARAMETER}.{RESERVED_FIELD}` is reserved for failures; choose another name")
    return fields


def _read_field_list(items: list[Any]) -> object:
    """Convert a list of fields, `[{"field": "price", "type": "number"}]`, or of names alone to an object."""
    fields: dict[Any, Any] = {}
    for item in items:
        if isinstance(item, str) and item.casefold() not in _TYPE_WORDS.values():
            declared: dict[Any, Any] = {item: "string"}
        elif isinstance(item, dict) and (name := _read_named_field(item)) is not None:
            declared = {name: item.get("type", "string")}
        elif isinstance(item, dict) and (
            len(item) == 1 or (len(items) == 1 and item.get("type") == "object")
        ):
            declared = item
        else:  # A list of records cannot become one object.
            return items
        if declared.keys() & fields.keys():
            raise NoIntent(f"`{INTENT_PARAMETER}` declares a field twice")
        fields |= declared
    return fields


def _read_named_field(item: Mapping[str, Any]) -> str | None:
    """Return the field that an entry such as {"field": "price", "type": "number"} names; None for a record."""
    name = item.get("field", item.get("name"))
    plain = isinstance(name, str) and name.casefold() not in _TYPE_WORDS.values()
    return name if plain and item.keys() <= {"field", "name", "type", "description", "required"} else None


def _unquote(text: str) -> object:
    for read in (json.loads, literal_eval):
        try:
            return read(text[:_LONGEST])
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return text


def _parse_node(value: object, path: str, depth: int) -> Any:
    if depth == 0:
        raise NoIntent(f"`{path[:80]}` is nested too deeply; use at most {MAX_NESTING} levels")
    value = translate_schema(value)
    if value is None:
        return "string"
    if isinstance(value, str):
        return _parse_word(value, path)
    if isinstance(value, dict):
        return _parse_object(value, path, depth)
    if isinstance(value, list):
        return [_parse_element(value, path, depth)]
    raise NoIntent(f'`{path}` is {_shorten(value)}; give a type name such as "string"')


def _parse_word(word: str, path: str) -> Any:
    element = parse_list_type(word)
    if element is not None:
        return [_parse_word(element, path)]
    name = parse_type_name(word)
    if name is None:
        raise NoIntent(
            f'`{path}` is {_shorten(word)}, which is no type; use "string", "number", "integer", "boolean",'
            " an object of fields, or a list with one element"
        )
    return name


def _parse_element(items: list[Any], path: str, depth: int) -> Any:
    if items and all(isinstance(item, dict) and _read_named_field(item) is not None for item in items):
        items = [_read_field_list(items)]
    kinds = [_parse_node(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(items[:20])]
    if any(kind != kinds[0] for kind in kinds) or len(items) > len(kinds):
        raise NoIntent(f"`{path}` is a list of several types; give a list with one element")
    return kinds[0] if kinds else "string"


def _parse_object(fields: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    if not fields:
        raise NoIntent(f"`{path}` declares no field; name at least one")
    named = {_parse_field_name(key, path): child for key, child in fields.items()}
    if len(named) < len(fields):
        raise NoIntent(f"`{path}` declares a field twice")
    parsed: dict[str, Any] = {}
    for key, child in named.items():
        # A description or an example in place of a type, as in {"title": "Its title"}, means a string.
        described = isinstance(child, str) and not (parse_list_type(child) or parse_type_name(child))
        parsed[key] = "string" if described else _parse_node(child, f"{path}.{key}", depth - 1)
    return parsed


def _parse_field_name(key: object, path: str) -> str:
    """Turn a field's name into an identifier: blanks, dashes and dots become underscores."""
    name = _BLANKS.sub("_", str(key).strip())
    if not _FIELD.fullmatch(name):
        raise NoIntent(
            f"`{path}` has a field named {_shorten(key)}; a name begins with a letter and has at most 41"
            " letters, digits and underscores"
        )
    return name


def _shorten(value: object) -> str:
    """Shorten an agent's own words for an error that only this agent sees."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def add_intent_to_tools(functions: Sequence[Function]) -> list[ToolSpec]:
    """Describe these functions to a model, each with the required argument `intent` added.

    The agents' system messages explain an intent once, instead of every tool's schema.

    Raises:
        ConfigError: If a tool already has a parameter named `intent`.
    """
    specs = []
    for function in functions:
        plain = describe_tool(function)
        schema = _SCHEMAS.get(function.parameters)
        if schema is None:
            schema = _SCHEMAS[function.parameters] = _extend_schema(plain)
        specs.append(ToolSpec(plain.name, plain.description, schema))
    return specs


def _extend_schema(spec: ToolSpec) -> JsonSchema:
    if INTENT_PARAMETER in spec.arguments:
        raise ConfigError(
            f"Tool '{spec.name}' has a parameter named '{INTENT_PARAMETER}', which AgentSys adds to every"
            " tool; rename the tool's parameter to use this defense."
        )
    # Schema alternatives may forbid further arguments, so also `intent`; the tool's own schema checks the rest.
    plain = {key: value for key, value in spec.parameters.items() if key not in ("$ref", *COMBINATORS)}
    return {
        **plain,
        "type": "object",
        "properties": {**spec.arguments, INTENT_PARAMETER: INTENT_SCHEMA},
        "required": [*spec.required, INTENT_PARAMETER],
    }
