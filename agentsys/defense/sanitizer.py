"""The sanitizer (section 5.5): a model points at planted instructions, and code cuts them out.

The model cannot write into the output: what it returns is only looked up in the original, so the
cleaned text is always a subsequence of the text that came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsys.defense.gate import first_object
from agentsys.defense.prompts import SANITIZER, SANITIZER_SECTIONS
from agentsys.defense.sections import write_sections
from agentsys.models.chat import ChatModel, ChatRequest, JsonSchema, system, text_of, user
from agentsys.models.trace import span

ROLE = "sanitizer"

REPLY_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {"spans": {"type": "array", "items": {"type": "string"}}},
    "required": ["spans"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Cleaned:
    """An output without the passages that were found in it."""

    text: str
    cut: tuple[str, ...]
    """The pieces taken out, in order of place."""


def sanitize(model: ChatModel, output: str, tool: str | None = None) -> str:
    """The output without the instructions that the model found in it.

    The model is given the output alone: neither the user's request nor the intent. A malformed reply
    cuts nothing.

    Args:
        model: The model that looks for instructions.
        output: The raw output. A blank one is returned as it is, without a question.
        tool: The tool it came from, for the trace.

    Raises:
        ModelError: If the model gave no reply.
    """
    if not output.strip():
        return output
    messages = [system(SANITIZER), user(write_sections(SANITIZER_SECTIONS, [output]))]
    with span(ROLE, tool) as opened:
        reply = model.complete(ChatRequest(messages, role=ROLE, reply_schema=REPLY_SCHEMA)).message
        spans = spans_in(text_of(reply))
        cleaned = cut(output, spans or ())
        opened.messages = [*messages, reply]
        opened.decision = {
            "well_formed": spans is not None,
            "spans_cut": len(cleaned.cut),
            "cut": list(cleaned.cut),
        }
    return cleaned.text


def spans_in(reply: str) -> list[str] | None:
    """The passages a reply names; None where it is not of the form asked for."""
    spans = (first_object(reply) or {}).get("spans")
    if not isinstance(spans, list) or not all(isinstance(item, str) for item in spans):
        return None
    return spans


def cut(text: str, spans: Sequence[str]) -> Cleaned:
    """A text without every occurrence of the given spans.

    All places are found in the original before anything is removed: pieces that only meet through a cut
    are never taken for a span. Spans that do not occur, or are blank, change nothing.
    """
    merged: list[list[int]] = []
    for start, end in sorted(place for item in set(spans) for place in _places(text, item)):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    starts = [0, *(end for _, end in merged)]
    ends = [*(start for start, _ in merged), len(text)]
    kept = "".join(text[start:end] for start, end in zip(starts, ends, strict=True))
    return Cleaned(kept, tuple(text[start:end] for start, end in merged))


def _places(text: str, item: str) -> list[tuple[int, int]]:
    # Models like to add or lose blanks at the ends of a quotation.
    wanted = item if item in text else item.strip()
    if not wanted.strip():
        return []
    found = []
    start = text.find(wanted)
    while start >= 0:
        found.append((start, start + len(wanted)))
        start = text.find(wanted, start + len(wanted))
    return found
