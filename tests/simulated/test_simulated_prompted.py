"""The simulated agent without native tools: it reads them in the system message and calls them in tags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys.models.prompted_tools import ANSWER, CALL, read_calls, text_between_tags, write_tools
from agentsys.simulated.playbook_index import Playbook, ScriptedCall, TaskScript
from agentsys.simulated.simulated_model import SimulatedModel

TOOLS = [ToolSpec("read", "Reads.", {"properties": {}}), ToolSpec("pay", "Pays.", {"properties": {}})]
PROMPT = "Read the bill and pay Bob."


def model() -> ChatModel:
    calls = (ScriptedCall("read", {}), ScriptedCall("pay", {"to": "Bob"}))
    return SimulatedModel().with_playbook(
        lambda: Playbook((TaskScript("s", "t", PROMPT, calls, "Paid Bob.", ()),), ()), {}
    )


def ask(*messages: Any) -> str:
    request = ChatRequest([system(f"Rules.\n{write_tools(TOOLS)}"), user(PROMPT), *messages])
    return text_of(model().complete(request).message)


def called(reply: str) -> list[str]:
    return [call.function for call in read_calls(text_between_tags(reply, CALL) or "")]


def test_it_calls_in_tags_and_answers_in_tags() -> None:
    call = FunctionCall(function="read", args={}, id="1")
    first = ask()
    assert called(first) == ["read"]
    turn: list[Any] = [
        assistant(first, [call]),
        {"role": "tool", "content": None, "tool_call": call, "tool_call_id": "1", "error": None},
    ]
    assert called(ask(*turn)) == ["pay"]
    pay = replace_call(turn)
    last = ask(*turn, *pay)
    assert called(last) == []
    assert text_between_tags(last, ANSWER) == "Paid Bob."


def replace_call(turn: list[Any]) -> list[Any]:
    call = FunctionCall(function="pay", args={"to": "Bob"}, id="2")
    return [assistant("", [call]), {**turn[1], "tool_call": call, "tool_call_id": "2"}]


def test_a_call_that_was_refused_is_given_up_after_a_few_attempts() -> None:
    turns: list[Any] = []
    seen = []
    for _ in range(4):
        reply = ask(*turns)
        seen += called(reply)
        turns += [assistant(reply, []), user("No.")]
    assert seen == ["read", "read", "read", "pay"]


def test_native_tools_that_may_not_be_called_are_not_in_the_way() -> None:
    request = ChatRequest([system(write_tools(TOOLS)), user(PROMPT)], TOOLS[:1], tool_choice="none")
    assert called(text_of(model().complete(request).message)) == ["read"]


def test_a_request_without_tools_anywhere_gets_a_plain_answer() -> None:
    request = ChatRequest([system("Rules."), user(PROMPT)])
    assert "<" not in text_of(model().complete(request).message)
    native = replace(request, tools=TOOLS)
    assert model().complete(native).message["tool_calls"]
