"""What a blocked step leaves of its tool results."""

from __future__ import annotations

from collections.abc import Sequence

from agentdojo.types import ChatMessage, ChatToolResultMessage, text_content_block_from_string

from baselines.melon.prompts import PLACEHOLDER
from baselines.melon.settings import Redact


def step_start(messages: Sequence[ChatMessage]) -> int:
    """Index of the first tool result of the latest step: those behind the last assistant message."""
    assistant = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return assistant[-1] + 1 if assistant else 0


def redacted(messages: Sequence[ChatMessage], redact: Redact) -> list[ChatMessage]:
    """The conversation with tool results of the latest step replaced; the messages given stay as they are.

    Args:
        messages: The conversation, which may end with a repeated request.
        redact: `step`: all of them, with their error texts. `newest`: the content of the last one.
    """
    results = [
        index for index in range(step_start(messages), len(messages)) if messages[index]["role"] == "tool"
    ]
    chosen = results if redact == "step" else results[-1:]
    new = list(messages)
    for index in chosen:
        message = messages[index]
        assert message["role"] == "tool"
        new[index] = _without_text(message, keep_error=redact == "newest")
    return new


def _without_text(message: ChatToolResultMessage, *, keep_error: bool) -> ChatToolResultMessage:
    error = message["error"]
    return {
        **message,
        "content": [text_content_block_from_string(PLACEHOLDER)],
        "error": error if keep_error or error is None else PLACEHOLDER,
    }
