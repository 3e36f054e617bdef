"""The tool results of the turn that has just run, which is what text-rewriting defenses change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentdojo.types import (
    ChatMessage,
    ChatToolResultMessage,
    MessageContentBlock,
    text_content_block_from_string,
)


def rewrite_new_results(
    messages: Sequence[ChatMessage], rewrite: Callable[[ChatToolResultMessage], ChatToolResultMessage]
) -> list[ChatMessage]:
    """The conversation with every tool result of the latest turn rewritten; its messages stay as they are.

    The latest turn is everything after the last assistant message, so a reminder that another
    element has already put behind the results does not hide them. `rewrite` makes a new message.
    """
    start = find_turn_start(messages)
    new = [rewrite(message) if message["role"] == "tool" else message for message in messages[start:]]
    return [*messages[:start], *new]


def find_new_results(messages: Sequence[ChatMessage]) -> list[int]:
    """Find the places of the latest turn's tool results in the conversation, in order."""
    start = find_turn_start(messages)
    return [place for place in range(start, len(messages)) if messages[place]["role"] == "tool"]


def rewrite_text_blocks(
    blocks: Sequence[MessageContentBlock], rewrite: Callable[[str], str]
) -> list[MessageContentBlock]:
    """New content blocks with the text of each text block rewritten; other blocks are kept."""
    return [
        text_content_block_from_string(rewrite(block["content"])) if block["type"] == "text" else block
        for block in blocks
    ]


def replace_result_text(result: ChatToolResultMessage, text: str) -> ChatToolResultMessage:
    """The result with another text where models read it: the error of a failed call, else the content."""
    if result["error"]:
        blank = rewrite_text_blocks(result["content"] or [], lambda _: "")
        return {**result, "content": blank, "error": text}
    others = [block for block in result["content"] or () if block["type"] != "text"]
    return {**result, "content": [text_content_block_from_string(text), *others]}


def find_turn_start(messages: Sequence[ChatMessage]) -> int:
    """Place of the first message behind the last assistant's; 0 where there is none."""
    assistant = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return assistant[-1] + 1 if assistant else 0
