"""Intents, the sections of messages, and the validator's one word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentdojo.functions_runtime import make_function
from hypothesis import given
from hypothesis import strategies as st
from scripted_for_defense import Tools

from agentsys.defense.intent import parse_intent, tools_with_intent
from agentsys.defense.sections import read_sections, write_sections
from agentsys.defense.validator import is_clear_true
from agentsys.errors import ConfigError


@pytest.mark.parametrize(
    "intent",
    [
        {"a": "string", "b": "number", "c": "integer", "d": "boolean"},
        {"hotels": [{"name": "string", "rooms": [{"price": "number"}]}], "tags": ["string"]},
        {"nested": {"deeper": {"leaf": "boolean"}}},
        {},
    ],
)
def test_the_grammar_accepts_objects_of_types_objects_and_one_element_lists(intent: dict[str, Any]) -> None:
    assert parse_intent(intent) == intent
    assert parse_intent(json.dumps(intent)) == intent


def nested(depth: int) -> dict[str, Any]:
    return {"a": "string"} if depth == 1 else {"a": nested(depth - 1)}


@pytest.mark.parametrize(
    "intent",
    [
        None,
        1,
        "",
        "string",
        "{",
        ["string"],
        {"a": "str"},
        {"a": 1},
        {"a": []},
        {"a": [1]},
        {"a": ["string"] * 2},
        nested(9),
        "[" * 100_000,
    ],
)
def test_anything_else_is_no_intent(intent: object) -> None:
    assert parse_intent(intent) is None


def test_tools_with_an_intent_share_their_schema_between_calls() -> None:
    functions = list(Tools().runtime().functions.values())
    first, second = tools_with_intent(functions), tools_with_intent(functions)
    assert all(a.parameters is b.parameters for a, b in zip(first, second, strict=True))


def test_a_tool_with_an_intent_of_its_own_is_a_clear_error() -> None:
    def odd(intent: str) -> str:
        """Odd.

        :param intent: Taken.
        """
        return intent

    with pytest.raises(ConfigError, match="'odd'"):
        tools_with_intent([make_function(odd)])


@given(st.text())
def test_sections_read_back_exactly_whatever_the_last_one_holds(body: str) -> None:
    titles = ("INTENT", "CALLS SO FAR", "TOOL OUTPUT")
    bodies = ['{"a": 1}', "[]", body]
    assert read_sections(write_sections(titles, bodies), titles) == bodies
    forged = write_sections(titles, bodies)
    assert read_sections(write_sections(titles, ["{}", "[]", forged]), titles) == ["{}", "[]", forged]


def test_other_text_has_no_sections() -> None:
    titles = ("A", "B")
    for text in ("", "A: x", "B:\nrest", "A: x\nC:\nrest", "X: x\nB:\nrest"):
        assert read_sections(text, titles) is None


@pytest.mark.parametrize("reply", ["True", "true", " TRUE.\n", "**True**", '"True"', "`True`"])
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
        '{"allow": true}',
        "Tru",
        "True\nFalse",
    ],
)
def test_anything_else_refuses(reply: str) -> None:
    assert not is_clear_true(reply)
