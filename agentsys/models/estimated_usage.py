"""Token counts of a call whose model counted none (the simulated one has no tokenizer), from characters.

Prose has more characters per token than data; tools are counted in the form in which models are shown
them (a line of types per argument), not as the JSON schema that is sent. Within 10% of OpenAI's
tokenizers over AgentDojo's benign cases, for a plain agent and for AgentSys; other vendors' differ more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatReply, ChatRequest, JsonSchema, ToolSpec, Usage, text_of

PROSE_CHARS_PER_TOKEN = 4.2
"""Characters per token of system messages and descriptions of tools."""
DATA_CHARS_PER_TOKEN = 3.5
"""Characters per token of everything else: what users ask, tools return and models answer."""
TOKENS_PER_MESSAGE = 4
"""Tokens around each message of a conversation, and around each call in one."""

_MAX_TOOLS = 4096
# Schemas are shared between requests and must not change; keeping the object keeps its id its own.
_TOOL_SIZES: dict[tuple[str, int], tuple[JsonSchema, int]] = {}


def reported_or_estimated_usage(request: ChatRequest, reply: ChatReply) -> Usage:
    """The usage that a model reported, or else an estimate."""
    counted = reply.usage != Usage() and not reply.usage.uncounted
    return reply.usage if counted else estimate_usage(request, reply.message)


def estimate_usage(request: ChatRequest, reply: ChatAssistantMessage) -> Usage:
    """Estimate what a real model might have counted for this call."""
    prompt = sum(map(_message_tokens, request.messages)) + sum(map(_tool_size, request.tools)) / PROSE_CHARS_PER_TOKEN
    return Usage(prompt=round(prompt), completion=round(_message_tokens(reply)))


def _message_tokens(message: ChatMessage) -> float:
    text = len(text_of(message))
    if message["role"] == "system":
        return TOKENS_PER_MESSAGE + text / PROSE_CHARS_PER_TOKEN
    if message["role"] == "tool":
        return TOKENS_PER_MESSAGE + len(message["error"] or "") / DATA_CHARS_PER_TOKEN + text / DATA_CHARS_PER_TOKEN
    calls = message["tool_calls"] or () if message["role"] == "assistant" else ()
    size = sum(len(call.function) + len(json.dumps(dict(call.args), default=str)) for call in calls)
    return TOKENS_PER_MESSAGE * (1 + len(calls)) + (text + size) / DATA_CHARS_PER_TOKEN


def _tool_size(tool: ToolSpec) -> int:
    key = tool.name, id(tool.parameters)
    known = _TOOL_SIZES.get(key)
    if known is not None and known[0] is tool.parameters:
        return known[1]
    size = len(format_tool(tool))
    if len(_TOOL_SIZES) >= _MAX_TOOLS:
        _TOOL_SIZES.clear()
    _TOOL_SIZES[key] = (tool.parameters, size)
    return size


def format_tool(tool: ToolSpec) -> str:
    """A tool as models are shown it: its description, and the type of each argument."""
    body = _format_type(tool.parameters, _as_mapping(tool.parameters.get("$defs")), depth=0)
    return f"// {tool.description}\ntype {tool.name} = (_: {body}) => any;\n\n"


_MAX_TYPE_DEPTH = 4
"""Of nested types; definitions may name themselves."""


def _format_type(schema: object, definitions: Mapping[str, Any], depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_TYPE_DEPTH:
        return "any"
    if "$ref" in schema:
        return _format_type(definitions.get(str(schema["$ref"]).rpartition("/")[2]), definitions, depth + 1)
    if values := _as_sequence(schema.get("enum")):
        return " | ".join(json.dumps(value, default=str) for value in values)
    if choices := _as_sequence(schema.get("anyOf")) or _as_sequence(schema.get("oneOf")):
        return " | ".join(_format_type(one, definitions, depth + 1) for one in choices)
    if schema.get("type") == "array":
        return _format_type(schema.get("items"), definitions, depth + 1) + "[]"
    if _as_mapping(schema.get("properties")):
        return _format_object_type(schema, definitions, depth)
    return str(schema.get("type") or "any")


def _format_object_type(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    required = _as_sequence(schema.get("required"))
    lines = []
    for name, value in schema["properties"].items():
        described = _as_mapping(value).get("description")
        lines += [f"// {described}"] if described else []
        lines.append(f"{name}{'' if name in required else '?'}: {_format_type(value, definitions, depth + 1)},")
    return "\n".join(["{", *lines, "}"])


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
