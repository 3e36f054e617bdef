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
from agentsys.defense.reading.quotation import QuotableText, cut_places
from agentsys.defense.reading.sections import write_sections
from agentsys.models.chat import ChatModel, ChatRequest, JsonSchema, system, text_of, user
from agentsys.models.errors import ModelError
from agentsys.models.loose_json import find_json_values
from agentsys.models.trace import Span, span

SANITIZER_ROLE = "sanitizer"
MAX_SANITIZER_ASKS = 2
"""How often a model is asked in all: once more where its reply is malformed or a passage is not found."""

SANITIZER_REPLY_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {"spans": {"type": "array", "items": {"type": "string"}}},
    "required": ["spans"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class CleanedOutput:
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


def sanitize(model: ChatModel, output: str, tool: str | None = None) -> CleanedOutput:
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
        return CleanedOutput(output)
    with span(SANITIZER_ROLE, tool) as opened:
        cleaned = _ask_sanitizer(model, output, opened)
        opened.decision = {
            "well_formed": cleaned.well_formed,
            "spans_named": cleaned.named,
            "spans_missed": cleaned.missed,
            "spans_cut": len(cleaned.cut),
            "cut": list(cleaned.cut),
        }
    return cleaned


def _ask_sanitizer(model: ChatModel, output: str, opened: Span) -> CleanedOutput:
    context: list[ChatMessage] = [
        system(SANITIZER),
        user(write_sections(SANITIZER_SECTIONS, [output])),
    ]
    opened.messages = context  # The same list: the span holds the context however this ends.
    named: list[str] = []
    cleaned = CleanedOutput(output)
    for _ in range(MAX_SANITIZER_ASKS):
        try:
            reply = model.complete(ChatRequest(list(context), role=SANITIZER_ROLE, reply_schema=SANITIZER_REPLY_SCHEMA)).message
        except ModelError as error:
            if not ends_subtask(error):
                raise
            return replace(cleaned, well_formed=False)
        context.append(reply)
        cleaned = _cut_again(output, named, parse_spans(text_of(reply)), cleaned)
        if cleaned.complete:
            break
        context.append(user(SANITIZER_AGAIN["missed" if cleaned.well_formed else "malformed"]))
    return cleaned


def _cut_again(output: str, named: list[str], spans: Sequence[str] | None, before: CleanedOutput) -> CleanedOutput:
    """Cut again once one more reply is known. `named` grows by its passages.

    A reply that points at something settles what an earlier one said in other words; one that points at
    nothing leaves it open.
    """
    if spans is None:
        return replace(before, well_formed=False)
    named += spans
    here = cut_spans(output, spans)
    return CleanedOutput(
        (both := cut_spans(output, named)).text,
        both.cut,
        both.named,
        here.missed if here.cut else max(here.missed, before.missed),
    )


def parse_spans(reply: str) -> list[str] | None:
    """The passages a reply names; None where it names none and does not say that there are none.

    Understood is, besides the form asked for, what models make of it: fences and prose around, a list on its
    own, one passage instead of a list, objects with a passage in them. It only ever leads to cuts.
    """
    values = list(find_json_values(reply))
    for spans in [v["spans"] for v in values if isinstance(v, dict) and "spans" in v] + values:
        if isinstance(spans, str):
            return [spans]
        if isinstance(spans, list) and (passages := _check_passages(spans)) is not None:
            return passages
    return None


def _check_passages(items: Sequence[object]) -> list[str] | None:
    passages = []
    for item in items:
        held = [part for part in item.values() if isinstance(part, str)] if isinstance(item, dict) else [item]
        if not held or not isinstance(held[0], str):
            return None
        passages.append(max((part for part in held if isinstance(part, str)), key=len))
    return passages


def cut_spans(text: str, spans: Sequence[str]) -> CleanedOutput:
    """A text without every occurrence of the given spans, in whatever layout.

    All places are found in the original before anything is removed: pieces that only meet through a cut
    are never taken for a span. Spans that do not occur, or are blank, change nothing.
    """
    quotable = QuotableText(text)
    wanted = [item for item in dict.fromkeys(spans) if item.strip()]
    places = [quotable.find_quotation(item) for item in wanted]
    kept, pieces = cut_places(text, [place for found in places for place in found])
    return CleanedOutput(kept, pieces, len(wanted), sum(not found for found in places))
