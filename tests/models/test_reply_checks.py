"""Replies that come to nothing are told from answers."""

from __future__ import annotations

import pytest
from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, user
from agentsys.models.reply_checks import count_oddities, looks_like_call

TOOLS = (ToolSpec("get_day", "Tells.", {"type": "object", "properties": {}}),)
ASK = ChatRequest([user("Which day?")], TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "get_day", "arguments": {}}\n</tool_call>',
        '<|python_tag|>{"name": "x", "parameters": {}}',
        '{"name": "get_day", "parameters": {}}',
        'I will look.\n```json\n{"type": "function", "name": "get_day", "arguments": {"a": 1}}\n```',
        "<function=get_day>{}</function>",
        '[TOOL_CALLS][{"name": "get_day", "arguments": {}}]',
        "<｜tool▁calls▁begin｜>function",
        "<|tool_calls_section_begin|>",
        "<|channel|>commentary to=functions.get_day",
        "[get_day(when='now')]",
    ],
)
def test_a_call_as_text_is_told(text: str) -> None:
    assert count_oddities(ASK, ChatReply(assistant(text))) == {"unparsed_call": 1}
    made = assistant(text, [FunctionCall(function="get_day", args={})])
    assert count_oddities(ASK, ChatReply(made)) == {}
    assert count_oddities(ChatRequest([user("x")]), ChatReply(assistant(text))) == {}


@pytest.mark.parametrize(
    "text",
    [
        "It is Monday.",
        '{"name": "Monday", "arguments": []}',
        '{"name": "get_day"}',
        "Call get_day() if you wonder.",
        "f(x) = y",
    ],
)
def test_an_answer_is_none(text: str) -> None:
    assert not looks_like_call(text, {"get_day"})


def test_empty_replies_are_counted_with_those_asked_for_again() -> None:
    assert count_oddities(ASK, ChatReply(assistant("x"), empty_before=2)) == {"empty": 2}
    assert count_oddities(ASK, ChatReply(assistant(" "), empty_before=2)) == {"empty": 3}
