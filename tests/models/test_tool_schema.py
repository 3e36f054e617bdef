"""What a tool's schema says of its arguments, wherever in it that stands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.chat import ToolSpec
from agentsys.models.tool_schema import list_arguments, list_required, list_schema_words

TREE = {
    "$defs": {
        "T": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}
    },
    "$ref": "#/$defs/T",
}


@pytest.mark.parametrize(
    ("schema", "arguments", "required"),
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, ["a"], ("a",)),
        (TREE, ["kids"], ()),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": True}}]}, ["a"], ("a",)),
        (
            {"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            ["a", "b"],
            (),
        ),
        ({"$ref": "#"}, [], ()),
        ({"$defs": {"a/b~": {"properties": {"x": {}}}}, "$ref": "#/$defs/a~1b~0"}, ["x"], ()),
        ({"properties": {"never": False, "open": True}}, ["open"], ()),
        ({"$ref": "https://elsewhere", "properties": [], "allOf": {}, "required": "a"}, [], ()),
    ],
)
def test_arguments_are_found_wherever_they_are_named(
    schema: Any, arguments: list[str], required: tuple[str, ...]
) -> None:
    assert list(list_arguments(schema)) == arguments
    assert list_required(schema) == required


def test_words_of_a_schema_are_its_values_wherever_they_stand_and_no_argument_called_so_is_one() -> None:
    who = {"type": "string", "default": "me", "examples": ["you", 3]}
    box = {"items": {"properties": {"box": {"enum": ["in", None]}, "kind": {"const": "mail"}}}}
    words = list_schema_words({"properties": {"who": who, "list": box}})
    assert {*words.values} == {"me", "you", "mail", "in"}
    assert {*words.fields} == {"who", "list", "box", "kind"}
    odd = dict.fromkeys(("enum", "examples", "properties", "const", "default"), True)
    assert list_schema_words({"properties": odd}) == ([], [*odd])


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["properties", "required", "allOf", "$ref", "$defs", "anyOf", "a", "type"]), inner
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["properties", "required", "allOf", "$ref", "anyOf"]), ANY_JSON))
def test_whatever_is_no_schema_is_passed_over(schema: dict[str, Any]) -> None:
    assert all(isinstance(one, dict) for one in list_arguments(schema).values())
    assert all(isinstance(name, str) for name in list_required(schema))
    assert ToolSpec("t", "", schema).signature


def test_definitions_that_name_each_other_many_times_over_are_written_within_a_bound() -> None:
    names = [f"p{number}" for number in range(200)]
    own = {"type": "object", "properties": {name: {"$ref": "#/$defs/A"} for name in names}}
    written = ToolSpec("t", "", {"$defs": {"A": own}, "$ref": "#/$defs/A"}).signature
    assert len(written) < 5_000_000
