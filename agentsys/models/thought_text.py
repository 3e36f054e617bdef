"""Thoughts that a server without a reasoning parser leaves in a model's text, told apart from what it says."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from agentdojo.types import text_content_block_from_string

from agentsys.models.chat import ChatReply, ChatRequest, ModelWrapper, text_of

_NAMES = r"(?:\w+:|longcat_)?(?:think|thinking|thoughts?|reasoning|reflection)(?::\w+)?"
_OPENING = (
    # Most models; Magistral; Kimi-VL; Cohere; open reasoners; Apertus; Kimi K3; gpt-oss; Gemma 4
    rf"<{_NAMES}>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<\|begin_of_thought\|>|<\|inner_prefix\|>"
    r"|<\|open\|>think<\|sep\|>|<\|channel\|>analysis<\|message\|>|<\|channel>thought\b"
)
_CLOSING = (
    rf"</{_NAMES}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|end_of_thought\|>|<\|inner_suffix\|>"
    r"|<\|close\|>think<\|sep\|>"
)
_CLOSED = re.compile(rf"(?:{_OPENING})(.*?)(?:{_CLOSING}|<\|end\|>|<channel\|>)\s*", re.DOTALL)
_BLOCK = re.compile(_CLOSED.pattern.replace(r"<channel\|>", r"<channel\|>|\Z"), re.DOTALL)
_UNOPENED = re.compile(rf"((?:(?!{_OPENING}).)*?)(?:{_CLOSING})\s*", re.DOTALL)


class SplitText(NamedTuple):
    """A text in two."""

    thoughts: str
    """Without their tags; empty where there are none."""
    text: str
    """What is left."""


class ThoughtBlock(StrEnum):
    """How thoughts stand at the beginning of a text."""

    TAGGED = "tagged"
    """Between two tags, or behind one: a reply that ends while it thinks has no text."""
    UNOPENED = "unopened"
    """Before a closing tag that none opens: many templates put the opening one into the prompt."""


_LEADING = {ThoughtBlock.TAGGED: _BLOCK, ThoughtBlock.UNOPENED: _UNOPENED}


def find_leading_block(text: str) -> ThoughtBlock | None:
    """How a text begins with thoughts; None where it does not."""
    return next((kind for kind, pattern in _LEADING.items() if pattern.match(text.lstrip())), None)


def split_leading_thoughts(text: str, kinds: Collection[ThoughtBlock] = tuple(ThoughtBlock)) -> SplitText:
    """Take the thoughts off with which a text begins, if they stand there in one of some ways."""
    kind, begun = find_leading_block(text), text.lstrip()
    block = None if kind is None or kind not in kinds else _LEADING[kind].match(begun)
    return SplitText(block[1].strip(), begun[block.end() :]) if block else SplitText("", text)


def split_all_thoughts(text: str, *, unclosed: bool = False) -> SplitText:
    """Take every block of thoughts off a text; with `unclosed` one too that begins within it and never ends."""
    if not any(sign in text for sign in "<[◁"):
        return SplitText("", text)
    thoughts, rest = split_leading_thoughts(text)
    pattern = _BLOCK if unclosed else _CLOSED
    inner = [block[1].strip() for block in pattern.finditer(rest)]
    return SplitText("\n".join(filter(None, (thoughts, *inner))), pattern.sub("", rest))


def has_thoughts(text: str) -> bool:
    """True if any thoughts stand in a text."""
    return split_all_thoughts(text).text != text


@dataclass
class ThoughtSplittingModel(ModelWrapper):
    """A model whose texts begin with thoughts, which are put where those are that a server tells apart."""

    block: ThoughtBlock
    """How they stand there. What it quotes may hold a closing tag, so tagged thoughts alone are looked for, or
    those before any closing tag too."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model."""
        reply = self.model.complete(request)
        thoughts, text = split_leading_thoughts(
            whole := text_of(reply.message), {ThoughtBlock.TAGGED, self.block}
        )
        if text == whole:
            return reply
        blocks = [block for block in reply.message["content"] or () if block["type"] != "text"]
        blocks += [{"type": "thinking", "content": thoughts, "id": None}]
        blocks += [text_content_block_from_string(text)] if text else []
        return replace(reply, message={**reply.message, "content": blocks})
