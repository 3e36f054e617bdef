"""`name_today`: what a tool of recorded runs is called now.

AgentDyn's published runs have a tool that follows links; at commit 5353cf7 the one that opens pages does so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

FORMER_TOOLS = {"click_the_link": "browse_webpage"}
"""Name in recorded runs -> name now. Both take the same arguments and return the same."""


def name_today(function: str, offered: Collection[str]) -> str:
    """The tool's name where tools of these names are on offer."""
    today = FORMER_TOOLS.get(function, function)
    return today if function not in offered and today in offered else function


def as_called_today(messages: Sequence[ChatMessage], offered: Collection[str]) -> tuple[ChatMessage, ...]:
    """A record's messages with every tool under the name it has among those on offer."""
    return tuple(_renamed(message, offered) for message in messages)


def _renamed(message: ChatMessage, offered: Collection[str]) -> ChatMessage:
    if message["role"] == "assistant" and message["tool_calls"]:
        return {**message, "tool_calls": [_call(call, offered) for call in message["tool_calls"]]}
    if message["role"] == "tool":
        return {**message, "tool_call": _call(message["tool_call"], offered)}
    return message


def _call(call: FunctionCall, offered: Collection[str]) -> FunctionCall:
    name = name_today(call.function, offered)
    return call if name == call.function else call.model_copy(update={"function": name})
