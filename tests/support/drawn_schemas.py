"""JSON schemas of tools as generators write them, drawn together with arguments that they admit."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Drawn = tuple[Any, Any]
"""A schema, and a value that it admits."""

NAMES = st.sampled_from(
    [
        "to",
        "self",
        "cls",
        "_x",
        "model_config",
        "model_fields",
        "copy",
        "a-b",
        "a b",
        "naïve",
        "from",
        "a\0b",
        "$ref",
    ]
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["[1, 2]", "['a']", "{}", "null", ""]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    fields = draw(st.dictionaries(NAMES, inner, max_size=4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: own for name, (own, _) in fields.items()},
    }
    value = {name: one for name, (_, one) in fields.items()}
    if draw(st.booleans()):
        schema["required"] = list(fields)
    match draw(st.sampled_from(["open", "said", "empty", "typed", "pattern", "closed"])):
        case "open":
            value = {**draw(st.dictionaries(TEXTS, VALUES, max_size=2)), **value}
        case "said":
            schema["additionalProperties"] = True
            value = {"more": draw(VALUES), **value}
        case "empty":
            schema["additionalProperties"] = {}
            value = {"more": draw(VALUES), **value}
        case "typed":
            schema["additionalProperties"] = {"type": ["string", "integer"]}
            value = {"more": draw(TEXTS | st.integers(0, 9)), **value}
        case "pattern":
            schema |= {"patternProperties": {"^x-": {"type": "boolean"}}, "additionalProperties": False}
            value = {"x-1": True, **value}
        case "closed":
            schema["additionalProperties"] = False
    return schema, value


@st.composite
def _combined(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    schema, value = draw(inner)
    match draw(st.sampled_from(["allOf", "anyOf", "oneOf", "$ref", "not"])):
        case "allOf":
            return {"allOf": [schema, True]}, value
        case "anyOf":
            return {"anyOf": [False, schema]}, value
        case "oneOf":
            return {"oneOf": [schema, {"not": {}}]}, value
        case "$ref":
            # Names of definitions are one name space: what is drawn inside keeps its own.
            return {"allOf": [{"anyOf": [schema, {"type": "null", "$comment": "[]"}]}]}, value
    return {"allOf": [schema], "not": {"const": {"no such": "value"}}}, value


def _leaves() -> st.SearchStrategy[Drawn]:
    return st.one_of(
        TEXTS.map(lambda text: ({"type": "string"}, text)),
        st.integers(-9, 9).map(lambda number: ({"type": "integer", "minimum": -9, "maximum": 9}, number)),
        st.lists(SCALARS, min_size=1, max_size=3).map(lambda found: ({"enum": found}, found[0])),
        VALUES.map(lambda value: (True, value)),
        VALUES.map(lambda value: ({}, value)),
        VALUES.map(lambda value: ({"const": value}, value)),
        st.lists(VALUES, max_size=3).map(lambda found: ({"type": "array", "items": {}}, found)),
        st.integers(0, 3).map(lambda depth: ({"$ref": "#/$defs/Tree"}, _grow(depth))),
    )


TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    "required": ["name"],
    "additionalProperties": False,
}


def _grow(depth: int) -> dict[str, Any]:
    return {"name": "n", "kids": [_grow(depth - 1)] * 2} if depth else {"name": "leaf"}


_INNER = st.recursive(_leaves(), lambda inner: _objects(inner) | _combined(inner), max_leaves=5)
_TOP = _objects(_INNER) | _combined(_objects(_INNER)) | st.just(({"$ref": "#/$defs/Tree"}, _grow(2)))
tool_schemas = _TOP.map(lambda drawn: ({**drawn[0], "$defs": {"Tree": TREE}}, drawn[1]))
