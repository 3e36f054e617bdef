"""JSON schemas of tools: their arguments, their type, and a form that servers enforce with any grammar engine.

Schemas are of other people, too: whatever is no schema is passed over, and references lead in circles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

COMBINATORS = ("allOf", "anyOf", "oneOf")
"""Keywords whose value is a list of schemas of the same object."""
_MAX_PARTS = 200


def list_arguments(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name -> schema of each argument that a schema names: at its top, in what it refers to or is combined of."""
    arguments: dict[str, Mapping[str, Any]] = {}
    for part in _walk_parts(schema, COMBINATORS):
        own = part.get("properties")
        for name, one in own.items() if isinstance(own, Mapping) else ():
            if one is not False:  # which nothing fits
                arguments.setdefault(str(name), one if isinstance(one, Mapping) else {})
    return arguments


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
    """Yield a schema, what it refers to and what it is combined of, each once."""
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
    node: Any = schema
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


_OWN_DEFINITION = re.compile(r"#/(\$defs|definitions)/[^/]+")
_DEFINITIONS = ("$defs", "definitions")
_PLAIN = ("type", "enum", "const")


def make_enforceable_schema(schema: Any) -> dict[str, Any]:
    """Rewrite a schema to the keywords that xgrammar, llguidance and llama.cpp enforce alike.

    Formats, bounds and patterns go: an engine each fills, ignores or refuses them otherwise, so whoever reads the
    reply checks them. An object that names its keys and is silent about others is closed, keys that it needs first.
    """
    if not isinstance(schema, Mapping):  # `true`
        return {}
    kept = {key: schema[key] for key in ("title", "description") if key in schema}
    for key in _DEFINITIONS:
        if isinstance(schema.get(key), Mapping):
            kept[key] = {name: make_enforceable_schema(each) for name, each in schema[key].items()}
    match schema:
        case {"$ref": target}:
            return kept | ({"$ref": target} if _OWN_DEFINITION.fullmatch(str(target)) else {})
        case {"allOf": [single]}:
            return make_enforceable_schema(single) | kept
        case {"anyOf": [*options]} | {"oneOf": [*options]} if not {*_PLAIN, "properties"} & schema.keys():
            return kept | {"anyOf": [make_enforceable_schema(each) for each in options]}
    kept |= {key: schema[key] for key in (*_PLAIN, "required") if key in schema}
    others = True if "patternProperties" in schema else schema.get("additionalProperties")
    if isinstance(properties := schema.get("properties"), Mapping):
        names = dict.fromkeys((*schema.get("required", ()), *properties))
        kept["properties"] = {name: make_enforceable_schema(properties.get(name)) for name in names}
        kept["type"] = schema.get("type", "object")
        others = False if others is None else others
    if others is not None:
        kept["additionalProperties"] = others if isinstance(others, bool) else make_enforceable_schema(others)
    if "items" in schema:
        kept["items"] = make_enforceable_schema(schema["items"])
    return kept


def is_closed_schema(schema: Mapping[str, Any]) -> bool:
    """True if every object in an enforceable schema is closed, all its keys are required, and no value is free.

    Strict mode, and with it the guarantee, is open only to such schemas.
    """
    properties, types = schema.get("properties", {}), schema.get("type", ())
    if "object" in types:  # the name, or one of a list
        if schema.get("additionalProperties") is not False or {*schema.get("required", ())} != {*properties}:
            return False
    elif not {*_PLAIN, "anyOf", "$ref"} & schema.keys():
        return False
    parts = [part for key in ("properties", *_DEFINITIONS) for part in schema.get(key, {}).values()]
    items = [schema.get("items", {})] if "array" in types else []
    return all(map(is_closed_schema, (*parts, *items, *schema.get("anyOf", ()))))


def format_type(parameters: Mapping[str, Any]) -> str:
    """The type of a tool's arguments, as models are shown it."""
    definitions = parameters.get("$defs")
    return _format_type(parameters, definitions if isinstance(definitions, Mapping) else {}, count(), depth=0)


_MAX_TYPE_DEPTH = 4
"""Of nested types; definitions may name themselves."""
_MAX_TYPES = 20_000
"""Of one tool: definitions that name each other many times over."""


def _format_type(schema: object, definitions: Mapping[str, Any], types: Iterator[int], depth: int) -> str:
    """Format one schema; definitions are looked up, up to a depth and a number of types."""
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
