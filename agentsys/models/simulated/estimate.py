"""Token counts of the simulated model, estimated from characters: it has no tokenizer."""

from __future__ import annotations

import json

from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, JsonSchema, ToolSpec, Usage, text_of

CHARACTERS_PER_TOKEN = 3.6
"""Characters of request and reply per token, tool schemas included."""

_KEPT_SCHEMAS = 4096
# Schemas are shared between requests and must not change; keeping the object keeps its id its own.
_SCHEMA_SIZES: dict[int, tuple[JsonSchema, int]] = {}


def estimated_usage(request: ChatRequest, reply: ChatAssistantMessage) -> Usage:
    """What a real model might have counted for this call."""
    prompt = sum(map(_message_size, request.messages)) + sum(map(_tool_size, request.tools))
    return Usage(prompt=_tokens(prompt), completion=_tokens(_message_size(reply)))


def _tokens(characters: int) -> int:
    return round(characters / CHARACTERS_PER_TOKEN)


def _message_size(message: ChatMessage) -> int:
    size = len(text_of(message))
    if message["role"] == "assistant":
        size += sum(len(call.function) + len(str(call.args)) for call in message["tool_calls"] or ())
    elif message["role"] == "tool":
        size += len(message["error"] or "")
    return size


def _tool_size(tool: ToolSpec) -> int:
    return len(tool.name) + len(tool.description) + _schema_size(tool.parameters)


def _schema_size(schema: JsonSchema) -> int:
    known = _SCHEMA_SIZES.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    size = len(json.dumps(schema))
    if len(_SCHEMA_SIZES) >= _KEPT_SCHEMAS:
        _SCHEMA_SIZES.clear()
    _SCHEMA_SIZES[id(schema)] = (schema, size)
    return size
