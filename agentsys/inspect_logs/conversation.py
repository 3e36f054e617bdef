"""Stored messages, of our runner, AgentDojo's or DRIFT's -> Inspect's. Nothing in them is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
)
from inspect_ai.tool import ToolCall, ToolCallError

from agentsys.analysis.html_report.loose import as_text, mapping, name, objects


def convert_messages(stored: object) -> list[ChatMessage]:
    """The messages of one context, in order; whatever is no message is passed over."""
    return [_convert_message(message, number) for number, message in enumerate(objects(stored))]


def convert_arguments(value: object) -> dict[str, Any]:
    """A call's arguments as JSON values."""
    plain = json.loads(json.dumps(mapping(value), default=str))
    return {str(key): item for key, item in plain.items()}


def build_refusal_error(message: str) -> ToolCallError:
    """The error of a call that did not run because a defense refused it."""
    return ToolCallError("approval", message)


def _convert_message(message: Mapping[str, Any], number: int) -> ChatMessage:
    text, role = _join_text(message.get("content")), name(message.get("role"))
    if role == "system":
        return ChatMessageSystem(content=text)
    if role == "assistant":
        calls = [
            _convert_call(call, f"{number}-{place}") for place, call in enumerate(objects(message.get("tool_calls")))
        ]
        return ChatMessageAssistant(content=text, tool_calls=calls or None)
    if role == "tool":
        error = message.get("error")
        return ChatMessageTool(
            content=text,
            tool_call_id=name(message.get("tool_call_id")) or None,
            function=name(mapping(message.get("tool_call")).get("function")) or None,
            error=None if error is None else ToolCallError("unknown", as_text(error)),
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
