"""JSON schemas as every server enforces them, whichever grammar engine it has; and which of them are strict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
