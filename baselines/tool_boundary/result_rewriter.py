"""`ResultRewriter`: a filter that reads tool results one by one, and what rewrites their text.

Parts of questions to guard models come first: marks around what others wrote, and small readers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import yaml
from agentdojo.types import (
    ChatMessage,
    ChatToolResultMessage,
    MessageContentBlock,
    text_content_block_from_string,
)

from agentsys.base.json_values import list_scalars, map_texts
from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.providers.wire_parts import read_result_text
from agentsys.models.trace import get_current_tracer, span
from baselines.tool_boundary.boundary_filter import BoundaryFilter, FilterTurn


def read_question(request: ChatRequest) -> str:
    """Return the question of a request, ignoring later answers and repairs; for simulations."""
    return next(text_of(message) for message in request.messages if message["role"] == "user")


def read_truth(value: object) -> object:
    """Read a truth value that a model may have written as a word; anything else stays as it is."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    return words.get(value.strip().casefold()) if isinstance(value, str) else value


def draw_fence_word(seed: int, *texts: str) -> str:
    """Draw a word that none of the texts contains, for marks around them that they cannot close.

    It depends on the seed and all of the texts, so a run repeats it and who writes a part of them cannot
    foresee it without the seed.
    """
    key = "\x1f".join([str(seed), *texts]).encode("utf-8", "surrogatepass")
    while True:
        key = hashlib.blake2b(key, digest_size=8).digest()
        word = key.hex()
        if not any(word in text for text in texts):
            return word


def wrap_in_fences(word: str, text: str) -> str:
    """Put a text between two marks that hold the word."""
    return f"[begin {word}]\n{text}\n[end {word}]"


def read_fenced_text(text: str, number: int = 0) -> str:
    """Read the text that stands in a question's fence (`wrap_in_fences`), for simulated models.

    `number` counts the fences from 0; a text inside an earlier fence cannot open one.
    """
    rest = text
    for _ in range(number + 1):
        word, _, rest = rest.partition("[begin ")[2].partition("]\n")
        inside, _, rest = rest.partition(f"\n[end {word}]")
    return inside


_CODE_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)


def strip_code_fence(text: str) -> str:
    """Strip blanks around a text, and the code fence that a model put around the whole of it."""
    fenced = _CODE_FENCE.match(text.strip())
    return (fenced[1] if fenced is not None else text).strip()


def rewrite_new_results(
    messages: Sequence[ChatMessage], rewrite: Callable[[ChatToolResultMessage], ChatToolResultMessage]
) -> list[ChatMessage]:
    """Rewrite every tool result of the latest turn; the messages given stay as they are.

    The latest turn is everything after the last assistant message, so a reminder that another
    element has already put behind the results does not hide them. `rewrite` makes a new message.
    """
    start = find_turn_start(messages)
    new = [rewrite(message) if message["role"] == "tool" else message for message in messages[start:]]
    return [*messages[:start], *new]


def find_new_results(messages: Sequence[ChatMessage]) -> list[int]:
    """Find the places of the latest turn's tool results in the conversation, in order."""
    start = find_turn_start(messages)
    return [index for index in range(start, len(messages)) if messages[index]["role"] == "tool"]


def rewrite_text_blocks(
    blocks: Sequence[MessageContentBlock], rewrite: Callable[[str], str]
) -> list[MessageContentBlock]:
    """Rewrite the text of each text block; other blocks are kept."""
    return [
        text_content_block_from_string(rewrite(block["content"])) if block["type"] == "text" else block
        for block in blocks
    ]


def replace_result_text(result: ChatToolResultMessage, text: str) -> ChatToolResultMessage:
    """Put another text where models read a result: the error of a failed call, else the content."""
    if result["error"]:
        blank = rewrite_text_blocks(result["content"] or [], lambda _: "")
        return {**result, "content": blank, "error": text}
    others = [block for block in result["content"] or () if block["type"] != "text"]
    return {**result, "content": [text_content_block_from_string(text), *others]}


def find_turn_start(messages: Sequence[ChatMessage]) -> int:
    """Return the index of the first message after the last assistant's; 0 if there is none."""
    return max((index for index, m in enumerate(messages, 1) if m["role"] == "assistant"), default=0)


ReadUnit = Literal["result", "strings"]
"""Unit shown to a guard: a whole result, or each string in it."""

# Both build plain values only; libyaml's is ten times faster, where PyYAML was built with it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRUCTURED = ("- ", "[", "{")


@dataclass(frozen=True)
class StringLeaves:
    """A result's text as the data it was written from."""

    data: Any
    """A list or an object; the text itself if it is neither."""
    text: str

    def list_strings(self) -> list[str]:
        """List every string, in text order, without keys."""
        return [leaf for leaf in list_scalars(self.data) if isinstance(leaf, str)]

    def replace_strings(self, change: Callable[[str], str]) -> str:
        """Change the strings of a text, each asked about once, in order; unchanged text stays byte for byte."""
        changed = map_texts(self.data, change)
        if changed == self.data:
            return self.text
        return changed if isinstance(changed, str) else str(yaml.safe_dump(changed)).strip()


def read_leaves(text: str) -> StringLeaves:
    """Read a result. Only what writes back to the same bytes counts as structured."""
    try:
        data = yaml.load(text, _LOADER) if _may_be_data(text) else text
        same = isinstance(data, list | dict) and str(yaml.safe_dump(data)).strip() == text
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        same = False
    return StringLeaves(data if same else text, text)


def _may_be_data(text: str) -> bool:
    # An anchor could unfold without end; what tools return as data has one only where AgentDojo writes it.
    return "&" not in text and (text.startswith(_STRUCTURED) or ": " in text or ":\n" in text)


OnDoubt = Literal["withhold", "keep"]
"""Handling of a result for which a guard gave no usable answer."""

WITHHELD = "<withheld: this tool result could not be checked>"
"""Stands for a result whose guard gave no answer that could be used."""
EMPTIED = "<nothing is left of this tool result>"
"""Replaces a result that was removed entirely: providers refuse an empty message."""


@dataclass(frozen=True)
class RewrittenResult:
    """One result after rewriting."""

    text: str
    """The text that the agent reads."""
    outcome: str
    """`clean`, `rewritten`, `withheld`, or a word of the filter's own for one of these."""
    asked: int = 0
    """Replies of guard models."""
    unreadable: int = 0
    """Those that could not be read."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for the record, JSON-ready."""
    flagged: bool | None = None
    """True if the guard flagged the result as an injection; None: it gave no verdict, or never gives one."""


class ResultRewriter(BoundaryFilter):
    """Reads each result by itself; blank ones are passed on unread.

    What is read is the error text of a failed call, else its content: a tool's error may quote what an
    attacker wrote. Each result read leaves a span of kind `detector`.
    """

    name: ClassVar[str] = "rewriter"
    gives_verdicts: ClassVar[bool] = True
    """True if it gives a verdict on each result; then its errors are counted."""

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Return what replaces a result's text, which is not blank."""
        raise NotImplementedError

    def filter_results(
        self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]
    ) -> list[ChatToolResultMessage]:
        """Rewrite each result in order."""
        return [self._rewrite_one(turn, result) for result in results]

    def _rewrite_one(self, turn: FilterTurn, result: ChatToolResultMessage) -> ChatToolResultMessage:
        text = read_result_text(result)
        if not text.strip():
            return result
        with span("detector", result["tool_call"].function) as node:
            node.decision = {"filter": self.name}
            rewritten = self.rewrite_result(turn, result, text)
            new = rewritten.text if rewritten.text.strip() else EMPTIED
            node.decision |= {
                "outcome": rewritten.outcome,
                "asked": rewritten.asked,
                "unreadable": rewritten.unreadable,
                "chars_in": len(text),
                "chars_out": len(rewritten.text),
                **rewritten.facts,
            }
            if new != text:
                node.decision["raw"] = text
            if self.gives_verdicts:
                get_current_tracer().note_guard_verdict(node, text, rewritten.flagged)
        return result if new == text else replace_result_text(result, new)


def make_unreadable_result(
    text: str, doubt: str, asked: int, unreadable: int, facts: Mapping[str, Any] | None = None
) -> RewrittenResult:
    """Keep a result about which a guard gave no usable answer if the option says so, else withhold it."""
    text, outcome = (text, "unreadable") if doubt == "keep" else (WITHHELD, "withheld")
    return RewrittenResult(text, outcome, asked, unreadable, facts or {})
