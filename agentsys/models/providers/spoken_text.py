"""`SpokenText`: text and thoughts of a reply whose server gives them in one piece, or in many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_THOUGHT_PARTS = frozenset({"thinking", "reasoning", "redacted_thinking", "reasoning_content"})
_THINK = re.compile(r"\s*<think>(.*?)(?:</think>\s*|\Z)", re.DOTALL)
_END = "</think>"


@dataclass(frozen=True)
class SpokenText:
    """What a model said, apart from what it thought."""

    text: str | None
    """None where the reply has no content at all, or none that is text."""
    thoughts: str = ""


def joined_parts(content: object) -> SpokenText:
    """The content of a reply: a text, or the list of parts that some models and gateways send.

    Parts are texts, or objects with a text; their kind is often left out. Anything else is passed over.
    """
    if isinstance(content, str):
        return SpokenText(content)
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return SpokenText(None)
    parts = [part for part in content if isinstance(part, str | Mapping)]
    thoughts = "".join(_text(part) for part in parts if _is_thought(part))
    return SpokenText("".join(_text(part) for part in parts if not _is_thought(part)) or None, thoughts)


def _is_thought(part: str | Mapping[str, Any]) -> bool:
    return not isinstance(part, str) and part.get("type") in _THOUGHT_PARTS


def _text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, list):  # Mistral's thoughts are parts of their own.
        return "".join(map(_text, part))
    if not isinstance(part, Mapping):
        return ""
    found = (part.get(field) for field in ("text", "thinking", "content", "refusal"))
    return next((_text(value) for value in found if isinstance(value, str | list)), "")


def without_think(said: SpokenText) -> SpokenText:
    """Take thoughts out of a text that a server without a reasoning parser left in it.

    They stand at its beginning between `<think>` and `</think>`. Many templates put the opening tag into the
    prompt, so that the reply has the closing one alone; a reply that ends while it thinks has no text.
    """
    if not said.text:
        return said
    opened = _THINK.match(said.text)
    if opened:
        return SpokenText(said.text[opened.end() :], said.thoughts + opened.group(1).strip())
    thought, closed, text = said.text.partition(_END)
    if not closed:
        return said
    return SpokenText(text.lstrip(), said.thoughts + thought.strip())
