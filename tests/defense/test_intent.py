"""Intents, the sections of messages, and the validator's one word."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from agentdojo.functions_runtime import make_function
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_for_defense import Tools

from agentsys.defense.intent import NoIntent, add_intent_to_tools, parse_intent
from agentsys.defense.prompts import format_sections, read_sections
from agentsys.defense.validator import is_clear_true
from agentsys.errors import ConfigError


@pytest.mark.parametrize(
    "intent",
    [
        {"a": "string", "b": "number", "c": "integer", "d": "boolean"},
        {"hotels": [{"name": "string", "rooms": [{"price": "number"}]}], "tags": ["string"]},
        {"nested": {"deeper": {"leaf": "boolean"}}},
        {"type": "string", "description": "string"},
        {"items": [{"title": "string", "type": "string"}]},
    ],
)
def test_the_grammar_accepts_objects_of_types_objects_and_one_element_lists(intent: dict[str, Any]) -> None:
    assert parse_intent(intent) == intent
    assert parse_intent(json.dumps(intent)) == intent


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({}, {}),
        ([], {}),
        ("{}", {}),
        ({"type": "object", "additionalProperties": True}, {}),
        ({"type": "object", "properties": {}}, {}),
        ([{"field": "status", "type": "string"}], {"status": "string"}),
        (
            [{"field": "url", "type": "str"}, {"name": "price", "type": "number"}],
            {"url": "string", "price": "number"},
        ),
        ([{"field": "content"}], {"content": "string"}),
        ([{"field": "details", "type": "object"}], {"details": "string"}),
        ({"a": {"b": ["dict"]}}, {"a": {"b": ["string"]}}),
        ([{"name": "string"}], {"name": "string"}),
        ([{"sender": "string"}, {"price": "number"}], {"sender": "string", "price": "number"}),
        (["name", "the url"], {"name": "string", "the_url": "string"}),
        ('["title"]', {"title": "string"}),
        ([{"field": "tags", "type": "list[string]"}], {"tags": ["string"]}),
        (
            {"a": "the sender of the mail", "b": "Bob", "n": "int"},
            {"a": "string", "b": "string", "n": "integer"},
        ),
    ],
)
def test_lists_of_fields_and_intents_that_want_nothing_are_read(written: Any, read: Any) -> None:
    assert parse_intent(written) == read


def nested(depth: int) -> dict[str, Any]:
    return {"a": "string"} if depth == 1 else {"a": nested(depth - 1)}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("str", "string"),
        ("String", "string"),
        ("int", "integer"),
        ("float", "number"),
        ("bool", "boolean"),
        ("date", "string"),
        ("datetime", "string"),
        ("array", ["string"]),
        ("list", ["string"]),
        ("list[string]", ["string"]),
        ("List[int]", ["integer"]),
        ("array<number>", ["number"]),
        ("string[]", ["string"]),
        ("list of strings", ["string"]),
        ("string | null", "string"),
        ("null | number", "number"),
        ("Optional[int]", "integer"),
        ("integer?", "integer"),
        ("<string>", "string"),
        ("number (in euros)", "number"),
        ("string: the sender's address", "string"),
        ("string, ISO format", "string"),
        (None, "string"),
        ([], ["string"]),
        (["string", "string"], ["string"]),
        (["str"], ["string"]),
        ({"type": "string"}, "string"),
        ({"type": "string", "description": "Who sent it"}, "string"),
        ({"type": ["integer", "null"]}, "integer"),
        ({"type": "string", "enum": ["a", "b"]}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"anyOf": [{"type": "null"}, {"type": "number"}]}, "number"),
        ({"type": "array", "items": {"type": "integer"}}, ["integer"]),
        ({"type": "array"}, ["string"]),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, {"a": "boolean"}),
        ({"who": "str", "when": "date"}, {"who": "string", "when": "string"}),
    ],
)
def test_what_models_write_for_a_type_is_brought_into_the_grammar(written: Any, read: Any) -> None:
    assert parse_intent({"field": written}) == {"field": read}
    assert parse_intent(parse_intent({"field": written})) == {"field": read}


@pytest.mark.parametrize(
    "written",
    [
        {"type": "object", "properties": {"Order ID": {"type": "string"}}, "required": ["Order ID"]},
        "{'Order ID': 'string'}",
        {"Order-ID": "str"},
        {" Order ID ": "string"},
    ],
)
def test_json_schema_python_and_names_with_blanks_are_read(written: Any) -> None:
    assert parse_intent(written) == {"Order_ID": "string"}


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        (None, "missing"),
        (1, "an object"),
        ("", "an object"),
        ("string", "an object"),
        ("{", "an object"),
        (["string"], "an object"),
        ([{"name": "string", "price": "number"}], "an object"),
        ([{"field": "a"}, {"field": "a", "type": "number"}], "twice"),
        ({"a": {}}, "`intent.a` declares no field"),
        ({"a": 1}, "`intent.a` is 1"),
        ({"a": [1]}, "`intent.a[0]` is 1"),
        ({"a": ["low", "high"]}, "`intent.a[0]` is 'low'"),
        ({"a": ["string", "number"]}, "several types"),
        ({"": "string"}, "a name begins with"),
        ({"1st": "string"}, "a name begins with"),
        ({"x" * 42: "string"}, "a name begins with"),
        ({"a b": "string", "a_b": "string"}, "twice"),
        ({"error": "string"}, "reserved"),
        (nested(9), "nested too deeply"),
        ("[" * 100_000, "an object"),
        ('{"a":' * 900 + '"string"' + "}" * 900, "nested too deeply"),
        ({"a": ["x" * 9_000]}, "..."),
    ],
)
def test_anything_else_is_refused_with_its_place_and_word(intent: object, said: str) -> None:
    with pytest.raises(NoIntent, match=re.escape(said)) as raised:
        parse_intent(intent)
    assert len(str(raised.value)) < 300


def test_alternatives_without_end_are_refused() -> None:
    deep: Any = {"type": "string"}
    for _ in range(5_000):
        deep = {"anyOf": [deep]}
    with pytest.raises(NoIntent, match="too deeply"):
        parse_intent({"a": deep})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["string", "list[int]", "type"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "items", "properties", "anyOf", "a", "b c"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_whatever_is_declared_the_result_is_in_the_grammar_or_refused(value: Any) -> None:
    try:
        intent = parse_intent(value)
    except NoIntent:
        return
    assert intent == {} or (isinstance(intent, dict) and in_grammar(intent))


def in_grammar(node: Any) -> bool:
    if isinstance(node, dict):
        return bool(node) and all(name.isidentifier() and in_grammar(child) for name, child in node.items())
    if isinstance(node, list):
        return len(node) == 1 and in_grammar(node[0])
    return node in ("string", "number", "integer", "boolean")


def test_tools_with_an_intent_share_their_schema_between_calls() -> None:
    functions = list(Tools().runtime().functions.values())
    first, second = add_intent_to_tools(functions), add_intent_to_tools(functions)
    assert all(a.parameters is b.parameters for a, b in zip(first, second, strict=True))


def test_a_tool_with_an_intent_of_its_own_is_a_clear_error() -> None:
    def odd(intent: str) -> str:
        """Odd.

        :param intent: Taken.
        """
        return intent

    with pytest.raises(ConfigError, match="'odd'"):
        add_intent_to_tools([make_function(odd)])


@given(st.text())
def test_sections_read_back_exactly_whatever_the_last_one_holds(body: str) -> None:
    titles = ("INTENT", "CALLS SO FAR", "TOOL OUTPUT")
    bodies = ['{"a": 1}', "[]", body]
    assert read_sections(format_sections(titles, bodies), titles) == bodies
    forged = format_sections(titles, bodies)
    assert read_sections(format_sections(titles, ["{}", "[]", forged]), titles) == ["{}", "[]", forged]


def test_other_text_has_no_sections() -> None:
    titles = ("A", "B")
    for text in ("", "A: x", "B:\nrest", "A: x\nC:\nrest", "X: x\nB:\nrest"):
        assert read_sections(text, titles) is None


@pytest.mark.parametrize(
    "reply",
    [
        "True",
        "true",
        " TRUE.\n",
        "**True**",
        '"True"',
        "`True`",
        "True - the user asked for it",
        "True. The user asked for it",
        "**True**\nThe request names Bob.",
        "Answer: True",
        "**Answer:** True",
        '{"answer": true}',
        '{"allow": true}',
        "<think>maybe false?</think>\nTrue",
    ],
)
def test_a_clear_true_allows(reply: str) -> None:
    assert is_clear_true(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "False",
        "Yes",
        "True, because",
        "True False",
        "not True",
        "1",
        "Tru",
        "True if the amount is right",
        "True only for Bob. ",
        "Truest",
        "<think>True</think>",
        "<think>True</think>no",
        '{"answer": true, "or": false}',
        "I would answer True",
        "True\n\nOn second thought: False.",
        "True.\nOnly if the user confirms the amount.",
        "True - unless Bob is not the user's colleague",
        "True\nFalse",
    ],
)
def test_anything_else_refuses(reply: str) -> None:
    assert not is_clear_true(reply)
