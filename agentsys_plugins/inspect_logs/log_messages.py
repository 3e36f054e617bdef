"""Stored messages, tokens and endings in Inspect's types. Nothing in what is stored is trusted."""

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
    Content,
    ContentReasoning,
    ContentText,
    ModelUsage,
    StopReason,
)
from inspect_ai.tool import ToolCall, ToolCallError

from agentsys.analysis.html_report.case_views import (
    as_text,
    take_mapping,
    take_name,
    take_number,
    take_objects,
)
from agentsys.base.json_values import to_json_bytes
from agentsys.records.schema import RoleUsage


def convert_role_usage(used: RoleUsage) -> ModelUsage:
    """Convert what one role used in one case."""
    return convert_call_usage(vars(used))


def convert_call_usage(call: Mapping[str, Any]) -> ModelUsage:
    """Convert what one stored call used; nothing in it is trusted."""
    keys = ("prompt", "completion", "cached", "written", "reasoning")
    prompt, completion, cached, written, reasoning = (int(take_number(call.get(key)) or 0) for key in keys)
    return ModelUsage(
        # As Inspect counts: its input is what was neither read from a cache nor written to one.
        input_tokens=max(0, prompt - cached - written),
        output_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens_cache_read=cached,
        input_tokens_cache_write=written,
        reasoning_tokens=reasoning,
        total_cost=take_number(call.get("cost_usd")),
    )


_TOKENS = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_tokens_cache_read",
    "input_tokens_cache_write",
    "reasoning_tokens",
)


def sum_usage(used: Iterable[ModelUsage]) -> ModelUsage:
    """The sum; its cost is unknown if one part's is."""
    listed = list(used)
    sums = {name: sum(getattr(usage, name) or 0 for usage in listed) for name in _TOKENS}
    costs = [usage.total_cost for usage in listed]
    return ModelUsage(**sums, total_cost=None if None in costs else sum(filter(None, costs)))


class MessageConverter:
    """Converts the messages of one sample: in all its contexts a message is one object, with one id.

    No other sample has that id: Inspect's table of messages drops what has an id that it has met.
    """

    def __init__(self, sample: str) -> None:
        self._sample = sample
        self._made: dict[tuple[int, bytes], ChatMessage] = {}

    def convert(self, stored: object) -> list[ChatMessage]:
        """The messages of one context, in order; whatever is no message is passed over."""
        return [self._convert(message, number) for number, message in enumerate(take_objects(stored))]

    def _convert(self, message: Mapping[str, Any], number: int) -> ChatMessage:
        key = number, to_json_bytes(message)
        if key not in self._made:
            self._made[key] = _convert_message(message, number, f"{self._sample}-m{len(self._made)}")
        return self._made[key]


def convert_arguments(value: object) -> dict[str, Any]:
    """A call's arguments as JSON values."""
    plain = json.loads(json.dumps(take_mapping(value), default=str))
    return {str(key): item for key, item in plain.items()}


def build_tool_error(error: object) -> ToolCallError:
    """The error that a tool returned."""
    return ToolCallError("unknown", as_text(error))


def _convert_message(message: Mapping[str, Any], number: int, identity: str) -> ChatMessage:
    text, role = _join_text(message.get("content")), take_name(message.get("role"))
    if role == "system":
        return ChatMessageSystem(id=identity, content=text)
    if role == "assistant":
        calls = [
            _convert_call(call, f"{number}-{place}")
            for place, call in enumerate(take_objects(message.get("tool_calls")))
        ]
        content = _convert_blocks(message.get("content"))
        return ChatMessageAssistant(id=identity, content=content, tool_calls=calls or None)
    if role == "tool":
        error = message.get("error")
        return ChatMessageTool(
            id=identity,
            content=text,
            tool_call_id=take_name(message.get("tool_call_id")) or None,
            function=take_name(take_mapping(message.get("tool_call")).get("function")) or None,
            error=None if error is None else build_tool_error(error),
        )
    return ChatMessageUser(id=identity, content=text)


def _convert_call(call: Mapping[str, Any], place: str) -> ToolCall:
    return ToolCall(
        id=take_name(call.get("id")) or f"call-{place}",
        function=take_name(call.get("function"), "unknown tool"),
        arguments=convert_arguments(call.get("args")),
    )


def _convert_blocks(content: object) -> str | list[Content]:
    """Convert an assistant's message: its text, or text and thoughts in their order."""
    if not isinstance(content, list):
        return _join_text(content)
    blocks: list[Content] = [
        ContentReasoning(
            reasoning=_get_block_text(block),
            signature=take_name(block.get("id")) or None,
            redacted=block["type"] == "redacted_thinking" or not _get_block_text(block),
        )
        if isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking")
        else ContentText(text=_get_block_text(block))
        for block in content
    ]
    has_thoughts = any(isinstance(block, ContentReasoning) for block in blocks)
    return blocks if has_thoughts else _join_text(content)


_STOP_REASONS: Mapping[str, StopReason] = {
    "complete": "stop",
    "refused": "stop",
    "calls": "tool_calls",
    "cut": "max_tokens",
    "filtered": "content_filter",
}
"""What Inspect calls an ending; others have no name there."""


def find_stop_reason(call: Mapping[str, Any], reply: ChatMessageAssistant) -> StopReason:
    """Why a reply ended, as it is stored of its call; of an older record what can be seen."""
    was_cut = take_number(take_mapping(call.get("odd")).get("cut"))
    ending = as_text(call.get("ending") or ("cut" if was_cut else "complete"))
    if reply.tool_calls and ending == "complete":
        return "tool_calls"
    return _STOP_REASONS.get(ending, "unknown")


def _join_text(content: object) -> str:
    if content is None:
        return ""
    blocks: Sequence[object] = content if isinstance(content, list) else [content]
    return "\n".join(_get_block_text(block) for block in blocks)


def _get_block_text(block: object) -> str:
    if isinstance(block, dict):
        block = "" if block.get("content") is None else block["content"]
    return as_text(block)
