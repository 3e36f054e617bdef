"""The validator (section 5.4): judges a call from what was asked and called, never from an output."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.defense.call_trace import CallTrace, TracedCall, one_line
from agentsys.defense.prompts import VALIDATOR, VALIDATOR_SECTIONS
from agentsys.defense.sections import write_sections
from agentsys.models.chat import ChatModel, ChatRequest, system, text_of, user
from agentsys.models.trace import span

ROLE = "validator"


@dataclass(frozen=True)
class Verdict:
    """The validator's answer about one call."""

    allow: bool
    reply: str
    """The model's words; for the trace only, never shown to an agent."""


def validate(model: ChatModel, query: str, trace: CallTrace, call: TracedCall) -> Verdict:
    """Ask whether a call serves the user's request.

    Args:
        model: The model that judges.
        query: The user's request.
        trace: The calls that ran before.
        call: The proposed call.

    Returns:
        The verdict; anything but a clear "True" refuses.

    Raises:
        ModelError: If the model gave no reply.
    """
    question = write_sections(VALIDATOR_SECTIONS, [trace.as_json(), one_line(call.as_data()), query])
    messages = [system(VALIDATOR), user(question)]
    with span(ROLE, call.tool) as opened:
        reply = model.complete(ChatRequest(messages, role=ROLE)).message
        verdict = Verdict(is_clear_true(text_of(reply)), text_of(reply))
        opened.messages = [*messages, reply]
        opened.decision = {"allow": verdict.allow, "call": call.as_data()}
    return verdict


def is_clear_true(reply: str) -> bool:
    """Whether a reply is the one word True, give or take case, a full stop, quotes and emphasis marks."""
    return reply.strip().strip("*_`\"'.").casefold() == "true"
