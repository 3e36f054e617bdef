"""The sanitizer (section 5.5): a model points at planted instructions, and code cuts them out.

The model cannot write into the output: what it returns is only looked up in the original, so the
cleaned text is always a subsequence of the text that came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentdojo.types import ChatMessage

from agentsys.defense.failures import ends_subtask
from agentsys.defense.prompts import SANITIZER, SANITIZER_AGAIN, SANITIZER_SECTIONS
from agentsys.defense.reading.quotation import Quotable, without
from agentsys.defense.reading.sections import write_sections
from agentsys.models.chat import ChatModel, ChatRequest, JsonSchema, system, text_of, user
from agentsys.models.errors import ModelError
from agentsys.models.loose_json import loose_values
from agentsys.models.trace import Span, span

ROLE = "sanitizer"
ASKS = 2
"""How often a model is asked in all: once more where its reply is malformed or a passage is not found."""

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
    cut: tuple[str, ...] = ()
    """The pieces taken out, in order of place."""
    named: int = 0
    """How many passages the model named."""
    missed: int = 0
    """How many of them stand nowhere in the output, and were not given again in words that do."""
    well_formed: bool = True
    """Whether the last reply was of the form asked for."""

    @property
    def complete(self) -> bool:
        """Whether everything that the model wanted out is out."""
        return self.well_formed and not self.missed


def sanitize(model: ChatModel, output: str, tool: str | None = None) -> Cleaned:
    """The output without the instructions that the model found in it.

    The model is given the output alone: neither the user's request nor the intent. Where it names a passage
    that is not there, or its reply is malformed, it is asked once more; what was found either time is cut.

    Args:
        model: The model that looks for instructions.
        output: The raw output. A blank one is returned as it is, without a question.
        tool: The tool it came from, for the trace.

    Raises:
        ModelError: If the model gave no reply for a reason that is not in the output. An output that it
            refuses or finds too long is one that could not be cleaned.
    """
    if not output.strip():
        return Cleaned(output)
    with span(ROLE, tool) as opened:
        cleaned = _ask(model, output, opened)
        opened.decision = {
            "well_formed": cleaned.well_formed,
            "spans_named": cleaned.named,
            "spans_missed": cleaned.missed,
            "spans_cut": len(cleaned.cut),
            "cut": list(cleaned.cut),
        }
    return cleaned


def _ask(model: ChatModel, output: str, opened: Span) -> Cleaned:
    context: list[ChatMessage] = [
        system(SANITIZER),
        user(write_sections(SANITIZER_SECTIONS, [output])),
    ]
    opened.messages = context  # The same list: the span holds the context however this ends.
    named: list[str] = []
    cleaned = Cleaned(output)
    for _ in range(ASKS):
        try:
            reply = model.complete(ChatRequest(list(context), role=ROLE, reply_schema=REPLY_SCHEMA)).message
        except ModelError as error:
            if not ends_subtask(error):
                raise
            return replace(cleaned, well_formed=False)
        context.append(reply)
        cleaned = _cut_again(output, named, spans_in(text_of(reply)), cleaned)
        if cleaned.complete:
            break
        context.append(user(SANITIZER_AGAIN["missed" if cleaned.well_formed else "malformed"]))
    return cleaned


def _cut_again(output: str, named: list[str], spans: Sequence[str] | None, before: Cleaned) -> Cleaned:
    """Cut again once one more reply is known. `named` grows by its passages.

    A reply that points at something settles what an earlier one said in other words; one that points at
    nothing leaves it open.
    """
    if spans is None:
        return replace(before, well_formed=False)
    named += spans
    here = cut(output, spans)
    return Cleaned(
        (both := cut(output, named)).text,
        both.cut,
        both.named,
        here.missed if here.cut else max(here.missed, before.missed),
    )


def spans_in(reply: str) -> list[str] | None:
    """The passages a reply names; None where it names none and does not say that there are none.

    Understood is, besides the form asked for, what models make of it: fences and prose around, a list on its
    own, one passage instead of a list, objects with a passage in them. It only ever leads to cuts.
    """
    values = list(loose_values(reply))
    for spans in [v["spans"] for v in values if isinstance(v, dict) and "spans" in v] + values:
        if isinstance(spans, str):
            return [spans]
        if isinstance(spans, list) and (passages := _passages(spans)) is not None:
            return passages
    return None


def _passages(items: Sequence[object]) -> list[str] | None:
    passages = []
    for item in items:
        held = [part for part in item.values() if isinstance(part, str)] if isinstance(item, dict) else [item]
        if not held or not isinstance(held[0], str):
            return None
        passages.append(max((part for part in held if isinstance(part, str)), key=len))
    return passages


def cut(text: str, spans: Sequence[str]) -> Cleaned:
    """A text without every occurrence of the given spans, in whatever layout.

    All places are found in the original before anything is removed: pieces that only meet through a cut
    are never taken for a span. Spans that do not occur, or are blank, change nothing.
    """
    quotable = Quotable(text)
    wanted = [item for item in dict.fromkeys(spans) if item.strip()]
    places = [quotable.places(item) for item in wanted]
    kept, pieces = without(text, [place for found in places for place in found])
    return Cleaned(kept, pieces, len(wanted), sum(not found for found in places))
