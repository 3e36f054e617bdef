"""Prices of models, dated, the cost of one call, and token counts estimated where a model counts none.

The estimate is from characters: prose has more of them per token than data, and tools are counted in the
form in which models are shown them, not as the JSON schema that is sent. It is within 10% of OpenAI's
tokenizers over AgentDojo's benign cases, for a plain agent and for AgentSys; other vendors' differ more.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from agentdojo.types import ChatAssistantMessage, ChatMessage
from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import (
    ChatReply,
    ChatRequest,
    ToolSpec,
    Usage,
    text_of,
)

_PER_MILLION = 1_000_000


class Price(BaseModel):
    """US dollars per million tokens, as a provider's price page said on a day.

    litellm's table is no substitute: it drops retired models, and with them the price of old runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    prompt: float = Field(ge=0)
    """Input tokens that were not read from the provider's prompt cache."""
    cached: float | None = Field(default=None, ge=0)
    """Input tokens read from the provider's prompt cache; None: the same as `prompt`."""
    written: float | None = Field(default=None, ge=0)
    """Input tokens written to that cache, where that has a price of its own; None: the same as `prompt`."""
    completion: float = Field(ge=0)
    """Output tokens, hidden reasoning included."""
    as_of: datetime.date
    """The day the price was read."""

    def max_usd(self, prompt: float, completion: float) -> float:
        """Cost of so many tokens where none of the prompt is in the provider's cache."""
        dearest = max(self.prompt, self.written or 0.0)
        return (prompt * dearest + completion * self.completion) / _PER_MILLION


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """Cost in US dollars of so many tokens; None (unknown, not 0) without a price or without a count."""
    if price is None or usage.uncounted:
        return None
    cached_price = price.prompt if price.cached is None else price.cached
    written_price = price.prompt if price.written is None else price.written
    fresh = usage.prompt - usage.cached - usage.written
    inputs = fresh * price.prompt + usage.cached * cached_price + usage.written * written_price
    millionths = inputs + usage.completion * price.completion
    return millionths / _PER_MILLION


PROSE_CHARS_PER_TOKEN = 4.2
"""Characters per token of system messages and descriptions of tools."""
DATA_CHARS_PER_TOKEN = 3.5
"""Characters per token of everything else: what users ask, tools return and models answer."""
TOKENS_PER_MESSAGE = 4
"""Tokens around each message of a conversation, and around each call in one."""


def pick_usage(request: ChatRequest, reply: ChatReply) -> Usage:
    """The usage that a model reported, or else an estimate."""
    counted = reply.usage != Usage() and not reply.usage.uncounted
    return reply.usage if counted else estimate_usage(request, reply.message)


def estimate_usage(request: ChatRequest, reply: ChatAssistantMessage) -> Usage:
    """Estimate what a real model might have counted for this call."""
    tools = sum(len(format_tool(tool)) for tool in request.tools) / PROSE_CHARS_PER_TOKEN
    prompt = sum(map(_estimate_message_tokens, request.messages)) + tools
    return Usage(prompt=round(prompt), completion=round(_estimate_message_tokens(reply)))


def _estimate_message_tokens(message: ChatMessage) -> float:
    text = len(text_of(message))
    if message["role"] == "system":
        return TOKENS_PER_MESSAGE + text / PROSE_CHARS_PER_TOKEN
    if message["role"] == "tool":
        return TOKENS_PER_MESSAGE + (len(message["error"] or "") + text) / DATA_CHARS_PER_TOKEN
    calls = message["tool_calls"] or () if message["role"] == "assistant" else ()
    size = sum(len(call.function) + len(json.dumps(dict(call.args), default=str)) for call in calls)
    return TOKENS_PER_MESSAGE * (1 + len(calls)) + (text + size) / DATA_CHARS_PER_TOKEN


def format_tool(tool: ToolSpec) -> str:
    """A tool as models are shown it: its description, and the type of each argument."""
    definitions = tool.parameters.get("$defs")
    body = _format_type(
        tool.parameters, definitions if isinstance(definitions, Mapping) else {}, count(), depth=0
    )
    return f"// {tool.description}\ntype {tool.name} = (_: {body}) => any;\n\n"


_MAX_TYPE_DEPTH = 4
"""Of nested types; definitions may name themselves."""
_MAX_TYPES = 20_000
"""Of one tool: definitions that name each other many times over."""


def _format_type(schema: object, definitions: Mapping[str, Any], types: Iterator[int], depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_TYPE_DEPTH or next(types) > _MAX_TYPES:
        return "any"
    if "$ref" in schema:
        return _format_type(
            definitions.get(str(schema["$ref"]).rpartition("/")[2]), definitions, types, depth + 1
        )
    listed = {key: value for key, value in schema.items() if isinstance(value, list | tuple)}
    if values := listed.get("enum"):
        return " | ".join(json.dumps(value, default=str) for value in values)
    if choices := listed.get("anyOf") or listed.get("oneOf"):
        return " | ".join(_format_type(choice, definitions, types, depth + 1) for choice in choices)
    if schema.get("type") == "array":
        return _format_type(schema.get("items"), definitions, types, depth + 1) + "[]"
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return str(schema.get("type") or "any")
    required, lines = listed.get("required", ()), []
    for name, value in properties.items():
        described = value.get("description") if isinstance(value, Mapping) else None
        lines += [f"// {described}"] if described else []
        lines.append(
            f"{name}{'' if name in required else '?'}: {_format_type(value, definitions, types, depth + 1)},"
        )
    return "\n".join(["{", *lines, "}"])
