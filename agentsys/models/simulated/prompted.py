"""The plain agent where tools are told in the system message and called in tags.

Such a request is turned into one with native tools, answered as always, and the answer written in tags.
"""

from __future__ import annotations

from dataclasses import replace

from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.tagged_calls import (
    CALL,
    CallSyntaxError,
    between,
    read_calls,
    read_tools,
    write_calls,
    write_reply,
)


def as_native(request: ChatRequest) -> ChatRequest | None:
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


def in_tags(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """A native reply as text in tags."""
    calls = [(call.function, call.args) for call in reply["tool_calls"] or ()]
    said = text_of(reply)
    return assistant(write_reply(said if calls else "", write_calls(calls), "" if calls else said))


def _with_calls(message: ChatMessage) -> ChatMessage:
    """An assistant message with the calls its text asks for: a refused one is not forgotten."""
    if message["role"] != "assistant" or message["tool_calls"]:
        return message
    try:
        calls = read_calls(between(text_of(message), CALL) or "")
    except CallSyntaxError:
        return message
    return {**message, "tool_calls": calls or None}
