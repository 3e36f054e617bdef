"""`SpokenText`: text and thoughts of a reply whose server gives them in one piece, or in many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_THOUGHT_PARTS = frozenset({"thinking", "reasoning", "redacted_thinking", "reasoning_content"})
_THINK_BLOCK = re.compile(r"\s*<think>(.*?)(?:</think>\s*|\Z)", re.DOTALL)
_THINK_END = "</think>"


@dataclass(frozen=True)
class ReplyText:
    """What a model said, apart from what it thought."""

    text: str | None
    """None where the reply has no content at all, or none that is text."""
    thoughts: str = ""


def join_content_parts(content: object) -> ReplyText:
    """The content of a reply: a text, or the list of parts that some models and gateways send.

    Parts are texts, or objects with a text; their kind is often left out. Anything else is passed over.
    """
    if isinstance(content, str):
        return ReplyText(content)
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return ReplyText(None)
    parts = [part for part in content if isinstance(part, str | Mapping)]
    thoughts = "".join(_part_text(part) for part in parts if _is_thought_part(part))
    return ReplyText("".join(_part_text(part) for part in parts if not _is_thought_part(part)) or None, thoughts)


def _is_thought_part(part: str | Mapping[str, Any]) -> bool:
    return not isinstance(part, str) and part.get("type") in _THOUGHT_PARTS


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, list):  # Mistral's thoughts are parts of their own.
        return "".join(map(_part_text, part))
    if not isinstance(part, Mapping):
        return ""
    found = (part.get(field) for field in ("text", "thinking", "content", "refusal"))
    return next((_part_text(value) for value in found if isinstance(value, str | list)), "")


def split_think_tag(said: ReplyText) -> ReplyText:
    """Take thoughts out of a text that a server without a reasoning parser left in it.

    They stand at its beginning between `<think>` and `</think>`. Many templates put the opening tag into the
    prompt, so that the reply has the closing one alone; a reply that ends while it thinks has no text.
    """
    if not said.text:
        return said
    opened = _THINK_BLOCK.match(said.text)
    if opened:
        return ReplyText(said.text[opened.end() :], said.thoughts + opened.group(1).strip())
    thought, closed, text = said.text.partition(_THINK_END)
    if not closed:
        return said
    return ReplyText(text.lstrip(), said.thoughts + thought.strip())
