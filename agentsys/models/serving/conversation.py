"""`WireConversation`: collects a wire request's messages as AgentDojo messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string

from agentsys.models.serving.wire import WireError

UNNAMED_CALL_PREFIX = "unnamed_call_"
"""Beginning of the ids, followed by a number, of calls that a client sends back without the id they had."""


def text_blocks(content: object) -> list[MessageContentBlock] | None:
    """Wire content - null, a string, or a list of text parts - as content blocks.

    Parts that are the model's own thinking are left out: a served model has no use for them.

    Raises:
        WireError: If a part is not text.
    """
    if content is None:
        return None
    if isinstance(content, str):
        return [text_content_block_from_string(content)]
    if not isinstance(content, list):
        raise WireError("'content' must be null, a string or a list of parts")
    texts = [_part_text(part) for part in content if not _is_thinking(part)]
    return [text_content_block_from_string(text) for text in texts]


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise WireError("only text parts are understood here")
    return text


def _is_thinking(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")


class WireConversation:
    """Messages in order; tool results find the call they answer by its id.

    Args:
        elsewhere: Whether the calls may stand in a conversation that the server keeps.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self._elsewhere = elsewhere
        self.messages: list[ChatMessage] = []
        self._calls: dict[str, FunctionCall] = {}

    def system(self, content: object) -> None:
        """Add a system message, unless it is empty."""
        if blocks := text_blocks(content):
            self.messages.append({"role": "system", "content": blocks})

    def user(self, content: object) -> None:
        """Add a user message."""
        self.messages.append({"role": "user", "content": text_blocks(content) or []})

    def assistant(self, content: object, calls: list[FunctionCall]) -> None:
        """Add an assistant message; later tool results may answer its calls."""
        for call in calls:
            self._calls[call.id or ""] = call
        blocks = text_blocks(content) or None
        self.messages.append({"role": "assistant", "content": blocks, "tool_calls": calls or None})

    def result(self, call_id: object, content: object, *, is_error: bool = False) -> None:
        """Add a tool result. An error's text stands in `error`, as in AgentDojo's own messages.

        Raises:
            WireError: If no earlier assistant message made a call of this id.
        """
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        if call is None and self._elsewhere and isinstance(call_id, str):
            call = FunctionCall(function="", args={}, id=call_id)
        if call is None:
            raise WireError(f"no earlier tool call has the id {call_id!r} that a tool result names")
        blocks = text_blocks(content) or [text_content_block_from_string("")]
        error = "\n".join(block["content"] for block in blocks) if is_error else None
        if is_error:
            blocks = [text_content_block_from_string("")]
        self.messages.append(
            {"role": "tool", "content": blocks, "tool_call": call, "tool_call_id": call.id, "error": error}
        )


def function_call(call_id: object, name: object, arguments: Mapping[str, Any]) -> FunctionCall:
    """A tool call as an earlier assistant message made it.

    Raises:
        WireError: If id or name is not a string.
    """
    if not isinstance(name, str) or not isinstance(call_id, str):
        raise WireError("a tool call needs a name and an id, both strings")
    return FunctionCall(function=name, args=dict(arguments), id=call_id)
