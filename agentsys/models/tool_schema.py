"""Reads the arguments of a tool out of its JSON schema, wherever they stand in it, and writes their type.

Schemas are of other people, too: whatever is no schema is passed over, and references lead in circles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

COMBINATORS = ("allOf", "anyOf", "oneOf")
"""Keywords whose value is a list of schemas of the same object."""
_MAX_PARTS = 200


def list_arguments(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name -> schema of each argument that a schema names: at its top, in what it refers to or is combined of."""
    found: dict[str, Mapping[str, Any]] = {}
    for part in _walk_parts(schema, COMBINATORS):
        own = part.get("properties")
        for name, one in own.items() if isinstance(own, Mapping) else ():
            if one is not False:  # which nothing fits
                found.setdefault(str(name), one if isinstance(one, Mapping) else {})
    return found


def list_required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the arguments that a call must have, whichever alternative it takes."""
    parts = _walk_parts(schema, ("allOf",))
    lists = [part["required"] for part in parts if isinstance(part.get("required"), list)]
    return tuple(dict.fromkeys(str(name) for names in lists for name in names))


class SchemaWords(NamedTuple):
    """The words of a tool's schema, which nobody but its owner chose."""

    values: list[str]
    """Enumerations, constants, defaults and examples."""
    fields: list[str]
    """Names of the fields of objects."""


def list_schema_words(schema: Mapping[str, Any]) -> SchemaWords:
    """The words that stand anywhere in a schema."""
    values: list[Any] = []
    fields: list[str] = []
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):  # a schema, or its arguments, one of which may be called `enum`
            values += [node.get("const"), node.get("default")]
            for key in ("enum", "examples"):
                values += node[key] if isinstance(node.get(key), list) else ()
            fields += node["properties"] if isinstance(node.get("properties"), Mapping) else ()
        waiting += node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    return SchemaWords([value for value in values if isinstance(value, str)], fields)


def _walk_parts(schema: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    seen: set[int] = set()
    waiting: list[Any] = [schema]
    for part in waiting:  # which grows
        if len(seen) >= _MAX_PARTS:
            return
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part.get("$ref"), str):
            waiting.append(_find_target(schema, part["$ref"]))
        waiting += [one for key in keys if isinstance(part.get(key), list) for one in part[key]]


def _find_target(schema: Mapping[str, Any], reference: str) -> Any:
    """Resolve a reference within a schema; None if it has no target here."""
    if not reference.startswith("#"):
        return None
    found: Any = schema
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def format_type(parameters: Mapping[str, Any]) -> str:
    """The type of a tool's arguments, as models are shown it."""
    definitions = parameters.get("$defs")
    return _format_type(parameters, definitions if isinstance(definitions, Mapping) else {}, count(), depth=0)


_MAX_TYPE_DEPTH = 4
"""Of nested types; definitions may name themselves."""
_MAX_TYPES = 20_000
"""Of one tool: definitions that name each other many times over."""


def _format_type(schema: object, definitions: Mapping[str, Any], types: Iterator[int], depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_TYPE_DEPTH or next(types) > _MAX_TYPES:
        return "any"
    if "$ref" in schema:
        return _format_type(
            definitions.get(str(schema["$ref"]).rpartition("/")[2]), definitions, types, depth + 1
        )
    listed = {key: value for key, value in schema.items() if isinstance(value, list | tuple)}
    if values := listed.get("enum"):
        return " | ".join(json.dumps(value, default=str) for value in values)
    if choices := listed.get("anyOf") or listed.get("oneOf"):
        return " | ".join(_format_type(choice, definitions, types, depth + 1) for choice in choices)
    if schema.get("type") == "array":
        return _format_type(schema.get("items"), definitions, types, depth + 1) + "[]"
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return str(schema.get("type") or "any")
    required, lines = listed.get("required", ()), []
    for name, value in properties.items():
        described = value.get("description") if isinstance(value, Mapping) else None
        lines += [f"// {described}"] if described else []
        lines.append(
            f"{name}{'' if name in required else '?'}: {_format_type(value, definitions, types, depth + 1)},"
        )
    return "\n".join(["{", *lines, "}"])
