"""Schemas as servers get them: keywords that all engines enforce, and nothing lost that a reader needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from drawn_schemas import Drawn, tool_schemas
from hypothesis import given
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from agentsys.models.chat import ChatRequest, user
from agentsys.models.providers.openai_wire import build_response_format
from agentsys.models.tool_schema import is_closed_schema, make_enforceable_schema

KEYWORDS = {
    "title", "description", "$defs", "definitions", "$ref", "anyOf", "type", "enum", "const", "items",
    "properties", "required", "additionalProperties",
}  # fmt: skip


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    yield schema
    for key in ("$defs", "definitions", "properties"):
        for one in schema.get(key, {}).values():
            yield from walk(one)
    more = [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    for one in (*more, *schema.get("anyOf", ())):
        yield from walk(one)


@given(tool_schemas)
def test_what_a_schema_admits_is_admitted_but_for_keys_that_an_object_does_not_name(drawn: Drawn) -> None:
    schema, value = drawn
    sent = make_enforceable_schema(schema)
    assert all(part.keys() <= KEYWORDS for part in walk(sent))
    assert make_enforceable_schema(sent) == sent
    Draft202012Validator.check_schema(sent)
    for part in walk(sent):
        if part.get("additionalProperties") is False:
            del part["additionalProperties"]
    assert Draft202012Validator(sent).is_valid(value)


TEXT = {"type": "string"}
CLOSED = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "is_closed"),
    [
        (CLOSED, True),
        ({"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, True),
        ({"type": "object", "properties": {"a": TEXT}}, False),
        (
            {
                "type": "object",
                "properties": {"type": TEXT, "properties": TEXT},
                "required": ["type", "properties"],
            },
            True,
        ),
        ({"type": "object"}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"a": {}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "array"}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"a": {"type": ["object", "null"]}}}, False),
        ({**CLOSED, "properties": {"a": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "object"}}}, False),
        ({**CLOSED, "properties": {"a": {"allOf": [{"type": "object"}]}}}, False),
        ({**CLOSED, "properties": {"a": {"oneOf": [TEXT, CLOSED]}}}, True),
        ({"type": "array", "items": TEXT}, False),
    ],
)
def test_strict_is_said_of_closed_objects_alone(schema: Any, is_closed: bool) -> None:
    sent = ChatRequest([user("Hi")], reply_schema=schema).schema_to_send(structured=False)
    assert sent is not None
    assert build_response_format(sent)["json_schema"]["strict"] is is_closed
    assert is_closed_schema(sent) is (is_closed or schema["type"] == "array")
