"""Calls as text in tags: written and read back, and never evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.chat import ToolSpec
from agentsys.models.prompted_tools import (
    CALL,
    CallSyntaxError,
    read_calls,
    read_tools,
    text_between_tags,
    write_calls,
    write_reply,
    write_tools,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "send_money"]), st.dictionaries(st.sampled_from("xyz"), VALUES)))
)
def test_written_calls_are_read_back(calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert [(call.function, dict(call.args)) for call in read_calls(write_calls(calls))] == calls


@pytest.mark.parametrize(
    "body",
    ["[f(x=__import__('os'))]", "[f(**{})]", "[a.b()]", "[1]", "f", "[f(x=y)]", "[f(", "f();g()", "\x00"],
)
def test_anything_but_calls_with_literals_is_an_error(body: str) -> None:
    with pytest.raises(CallSyntaxError):
        read_calls(body)


def test_a_call_without_brackets_negative_numbers_and_an_ellipsis_are_read() -> None:
    (call,) = read_calls("f(x=-1, y=..., z=(1, 2))")
    assert dict(call.args) == {"x": -1, "y": "...", "z": [1, 2]} or dict(call.args)["z"] == (1, 2)
    assert [call.function for call in read_calls("f(), g()")] == ["f", "g"]
    assert read_calls("  ") == []


def test_tools_and_replies_are_read_back() -> None:
    tools = [ToolSpec("a", "Does <b>.\nMore.", {"type": "object", "properties": {}}), ToolSpec("c", "", {})]
    assert read_tools(f"Before.\n{write_tools(tools)}\nAfter.") == tools
    assert read_tools("Nothing here.") == []
    assert read_tools(write_tools([])) == []
    assert text_between_tags(write_reply("hm", "[a()]", ""), CALL) == "[a()]"
    assert text_between_tags("<function_call>[", CALL) is None
