"""Token counts for models that report none: characters / 3.6, alike in every wire format.

Within -18% and +41% of a real tokenizer per document, -1% on average over agent trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatReply, ChatRequest, Usage

CHARACTERS_PER_TOKEN = 3.6


def usage_of(request: ChatRequest, reply: ChatReply) -> Usage:
    """The usage the model reported, or else an estimate from the text of both sides."""
    if reply.usage != Usage():
        return reply.usage
    tools = sum(
        len(tool.name) + len(tool.description) + len(orjson.dumps(tool.parameters)) for tool in request.tools
    )
    prompt = tools + sum(_characters(message) for message in request.messages)
    return Usage(prompt=_tokens(prompt), completion=_tokens(_characters(reply.message)))


def _tokens(characters: int) -> int:
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def _characters(message: ChatMessage) -> int:
    text = sum(len(block["content"] or "") for block in message["content"] or ())
    if message["role"] == "assistant":
        return text + _call_characters(message["tool_calls"] or ())
    if message["role"] == "tool":
        return text + len(message["error"] or "")
    return text


def _call_characters(calls: Iterable[FunctionCall]) -> int:
    return sum(len(call.function) + len(orjson.dumps(dict(call.args), default=str)) for call in calls)
