"""The plain agent where tools are told in the system message and called in the reply's text.

They are called in tags, as fenced actions, or in AgentDojo's text protocol.

Such a request is turned into one with native tools, answered as always, and the answer written as asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, assistant, system, text_of, tool_message, user
from agentsys.models.fenced_actions import (
    FINISH_ACTION,
    QUESTION,
    REPEAT_PREFIX,
    Action,
    ActionSyntaxError,
    read_action,
    read_observation,
    read_offer,
    write_action,
)
from agentsys.models.tagged_calls import (
    CALL,
    CallSyntaxError,
    text_between_tags,
    read_calls,
    read_tools,
    write_calls,
    write_reply,
)
from agentsys.models.text_tools import TEXT_PROTOCOLS, read_agentdojo_tools, write_agentdojo_call


def from_tags(request: ChatRequest) -> ChatRequest | None:
    """The request with native tools and calls; None where no tools stand in a system message.

    Native tools may be there as well, if they may not be called (see `stand_in_tools` of Anthropic's wire).
    """
    if request.tools and request.tool_choice != "none":
        return None
    systems = [text_of(message) for message in request.messages if message["role"] == "system"]
    tools = [tool for text in systems for tool in read_tools(text)]
    if not tools:
        return None
    messages = [_with_calls(message) for message in request.messages]
    return replace(request, messages=messages, tools=tools, tool_choice="auto")


def to_tags(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """A native reply as text in tags."""
    calls = [(call.function, call.args) for call in reply["tool_calls"] or ()]
    said = text_of(reply)
    return assistant(write_reply(said if calls else "", write_calls(calls), "" if calls else said))


def _with_calls(message: ChatMessage) -> ChatMessage:
    """An assistant message with the calls its text asks for: a refused one is not forgotten."""
    if message["role"] != "assistant" or message["tool_calls"]:
        return message
    try:
        calls = read_calls(text_between_tags(text_of(message), CALL) or "")
    except CallSyntaxError:
        return message
    return {**message, "tool_calls": calls or None}


def from_actions(request: ChatRequest) -> ChatRequest | None:
    """The request with native tools and calls, where one action a reply is asked for; None elsewhere."""
    systems = [text_of(message) for message in request.messages if message["role"] == "system"]
    offers = [offer for text in systems if (offer := read_offer(text)) is not None]
    if request.tools or not offers:
        return None
    messages: list[ChatMessage] = []
    for message in request.messages:
        open_call = _open_call(messages)
        said = read_observation(text_of(message)) if message["role"] == "user" else None
        if open_call is not None and said is not None:
            messages.append(_result_message(open_call, said))
        elif message["role"] == "user":
            messages.append(user(text_between_tags(text_of(message), QUESTION) or text_of(message)))
        else:
            messages.append(_with_action(message))
    return replace(request, messages=messages, tools=offers[0])


def to_action(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """A native reply as text with one action; of several calls the first is made."""
    calls = reply["tool_calls"]
    if not calls:
        return assistant(write_action(Action(FINISH_ACTION, text_of(reply))))
    return assistant(write_action(Action(calls[0].function, dict(calls[0].args)), text_of(reply)))


def from_text_protocol(request: ChatRequest) -> ChatRequest | None:
    """The request with native tools and calls, where AgentDojo's text protocol is spoken; None elsewhere."""
    first = request.messages[0] if request.messages else None
    told = read_agentdojo_tools(text_of(first)) if first is not None and first["role"] == "system" else None
    if request.tools or told is None:
        return None
    messages: list[ChatMessage] = [system(told[1])]
    for message in request.messages[1:]:
        open_call = _open_call(messages)
        returned = _parse_result(text_of(message)) if message["role"] == "user" else None
        if open_call is not None and returned is not None:
            output, error = returned
            messages.append({**_result_message(open_call, output), "error": error})
        elif message["role"] == "assistant":
            calls = TEXT_PROTOCOLS["agentdojo"].parse_calls(text_of(message))
            messages.append({**message, "tool_calls": calls or None})
        else:
            messages.append(message)
    return replace(request, messages=messages, tools=told[0])


def to_text_protocol(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """A native reply as text, its first call in it: the protocol knows no others."""
    calls = [write_agentdojo_call(call) for call in reply["tool_calls"] or ()][:1]
    return assistant("\n".join(filter(None, [text_of(reply), *calls])))


def _parse_result(text: str) -> tuple[str, str | None] | None:
    """Output and error of a call's result; None where a message is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not {"result", "error"} & value.keys():
        return None
    if "error" in value:
        return "", str(value["error"])
    blocks = value["result"]
    listed = blocks if isinstance(blocks, list) else [{"content": blocks}]
    return "\n".join(str(block.get("content")) for block in listed if isinstance(block, dict)), None


def _open_call(messages: Sequence[ChatMessage]) -> FunctionCall | None:
    last = messages[-1] if messages else None
    return last["tool_calls"][0] if last and last["role"] == "assistant" and last["tool_calls"] else None


def _with_action(message: ChatMessage) -> ChatMessage:
    """An assistant message with its action as a call."""
    if message["role"] != "assistant":
        return message
    try:
        action = read_action(text_of(message))
    except ActionSyntaxError:
        return message
    if action is None or action.name == FINISH_ACTION or not isinstance(action.input, dict):
        return message
    return {**message, "tool_calls": [FunctionCall(function=action.name, args=action.input)]}


def _result_message(call: FunctionCall, said: str) -> ChatMessage:
    # What was not taken because of its form is worth another attempt; a refusal or a tool's error is not.
    return tool_message(call, said, "its form was wrong" if said.startswith(REPEAT_PREFIX) else None)
