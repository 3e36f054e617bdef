"""Stored messages and tokens -> Inspect's. Nothing in them is trusted.

Messages are of our runner, AgentDojo's or DRIFT's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ModelUsage,
)
from inspect_ai.tool import ToolCall, ToolCallError

from agentsys.analysis.html_report.case_views import as_text, mapping, name, number, objects
from agentsys.records.schema import RoleUsage


def convert_role_usage(used: RoleUsage) -> ModelUsage:
    """Convert what one role used in one case."""
    return _build_usage(used.prompt, used.completion, used.cached, used.reasoning, used.cost_usd)


def convert_call_usage(call: Mapping[str, Any]) -> ModelUsage:
    """Convert what one stored call used; nothing in it is trusted."""
    keys = ("prompt", "completion", "cached", "reasoning")
    prompt, completion, cached, reasoning = (int(number(call.get(key)) or 0) for key in keys)
    return _build_usage(prompt, completion, cached, reasoning, number(call.get("cost_usd")))


def _build_usage(prompt: int, completion: int, cached: int, reasoning: int, cost: float | None) -> ModelUsage:
    return ModelUsage(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens_cache_read=cached,
        reasoning_tokens=reasoning,
        total_cost=cost,
    )


_TOKENS = ("input_tokens", "output_tokens", "total_tokens", "input_tokens_cache_read", "reasoning_tokens")


def sum_usage(used: Iterable[ModelUsage]) -> ModelUsage:
    """The sum; its cost is unknown if one part's is."""
    listed = list(used)
    sums = {name: sum(getattr(usage, name) or 0 for usage in listed) for name in _TOKENS}
    costs = [usage.total_cost for usage in listed]
    return ModelUsage(**sums, total_cost=None if None in costs else sum(filter(None, costs)))


def convert_messages(stored: object) -> list[ChatMessage]:
    """The messages of one context, in order; whatever is no message is passed over."""
    return [_convert_message(message, number) for number, message in enumerate(objects(stored))]


def convert_arguments(value: object) -> dict[str, Any]:
    """A call's arguments as JSON values."""
    plain = json.loads(json.dumps(mapping(value), default=str))
    return {str(key): item for key, item in plain.items()}


def build_tool_error(error: object) -> ToolCallError:
    """The error that a tool returned."""
    return ToolCallError("unknown", as_text(error))


def _convert_message(message: Mapping[str, Any], number: int) -> ChatMessage:
    text, role = _join_text(message.get("content")), name(message.get("role"))
    if role == "system":
        return ChatMessageSystem(content=text)
    if role == "assistant":
        calls = [
            _convert_call(call, f"{number}-{place}")
            for place, call in enumerate(objects(message.get("tool_calls")))
        ]
        return ChatMessageAssistant(content=text, tool_calls=calls or None)
    if role == "tool":
        error = message.get("error")
        return ChatMessageTool(
            content=text,
            tool_call_id=name(message.get("tool_call_id")) or None,
            function=name(mapping(message.get("tool_call")).get("function")) or None,
            error=None if error is None else build_tool_error(error),
        )
    return ChatMessageUser(content=text)


def _convert_call(call: Mapping[str, Any], place: str) -> ToolCall:
    return ToolCall(
        id=name(call.get("id")) or f"call-{place}",
        function=name(call.get("function"), "unknown tool"),
        arguments=convert_arguments(call.get("args")),
    )


def _join_text(content: object) -> str:
    """The text of a message's blocks; a plain string (AgentDojo's old form) is one."""
    if content is None:
        return ""
    blocks: Sequence[object] = content if isinstance(content, list) else [content]
    return "\n".join(_get_block_text(block) for block in blocks)


def _get_block_text(block: object) -> str:
    if isinstance(block, dict):
        block = "" if block.get("content") is None else block["content"]
    return as_text(block)
