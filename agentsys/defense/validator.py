"""The validator (section 5.4): judges a call from what was asked and called, never from an output."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.defense.call_trace import CallTrace, TracedCall, write_json_line
from agentsys.defense.failures import ends_subtask
from agentsys.defense.grounding import UserRequest
from agentsys.defense.prompts import VALIDATOR, VALIDATOR_SECTIONS
from agentsys.defense.reading.sections import write_sections
from agentsys.defense.rules import RuleDecision, Ruling
from agentsys.models.chat import ChatModel, ChatRequest, system, text_of, user
from agentsys.models.errors import ModelError
from agentsys.models.trace import span

VALIDATOR_ROLE = "validator"


@dataclass(frozen=True)
class ValidatorVerdict:
    """The validator's answer about one call."""

    allow: bool
    reply: str
    """The model's words; for the trace only, never shown to an agent."""


def validate(
    model: ChatModel, request: UserRequest, trace: CallTrace, call: TracedCall, described: str = ""
) -> ValidatorVerdict:
    """Ask whether a call serves the user's request.

    Args:
        model: The model that judges.
        request: The user's request.
        trace: The calls that ran before. A worker's words, in it and in the call, are shown only where the
            request has them too: they may be an output's.
        call: The proposed call.
        described: The description of its tool.

    Returns:
        The verdict; anything but a clear "True" refuses, and so does a model that will not answer.

    Raises:
        ModelError: If the model gave no reply for a reason that is not in the question.
    """
    proposed = {**call.mask(request), "tool_does": " ".join(described.split())}
    question = write_sections(
        VALIDATOR_SECTIONS, [trace.as_masked_json(request), write_json_line(proposed), request.text]
    )
    messages = [system(VALIDATOR), user(question)]
    with span(VALIDATOR_ROLE, call.tool) as opened:
        opened.messages = messages
        opened.decision = {"allow": False, "by": "model", "call": call.as_data()}
        try:
            reply = model.complete(ChatRequest(messages, role=VALIDATOR_ROLE)).message
        except ModelError as error:
            if not ends_subtask(error):
                raise
            opened.decision |= {"model_error": error.kind.value}
            return ValidatorVerdict(allow=False, reply="")
        verdict = ValidatorVerdict(is_clear_true(text_of(reply)), text_of(reply))
        opened.messages = [*messages, reply]
        opened.decision |= {"allow": verdict.allow}
    return verdict


def note_ruling(call: TracedCall, ruling: Ruling) -> None:
    """Put a decision that the rules made without a model into the case's trace."""
    allow = ruling.decision is RuleDecision.ALLOW
    with span(VALIDATOR_ROLE, call.tool) as opened:
        opened.decision = {"allow": allow, "by": f"rule {ruling.rule}", "call": call.as_data()}


def is_clear_true(reply: str) -> bool:
    """Whether a reply is the one word True, give or take case, a full stop, quotes and emphasis marks."""
    return reply.strip().strip("*_`\"'.").casefold() == "true"
