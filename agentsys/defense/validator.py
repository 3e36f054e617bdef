"""The validator (section 5.4): a model that judges a command from what was asked and called, never from an output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsys.defense.call_trace import CallTrace, TracedCall, UserRequest, write_json_line
from agentsys.defense.gate import ends_subtask
from agentsys.defense.prompts import VALIDATOR, VALIDATOR_SECTIONS, write_sections
from agentsys.models.chat import ChatModel, ModelError, system, text_of, user
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import span


def iterate_scalars(value: Any) -> Iterator[Any]:
    """The scalars inside arguments, whatever holds them."""
    if isinstance(value, Mapping):
        for child in value.values():
            yield from iterate_scalars(child)
    elif isinstance(value, list | tuple | set):
        for child in value:
            yield from iterate_scalars(child)
    else:
        yield value


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
        described: The description of its tool; empty where it is somebody else's words.

    Returns:
        The verdict; anything but a clear "True" refuses, and so does a model that will not answer.

    Raises:
        ModelError: If the model gave no reply for a reason that is not in the question.
    """
    proposed = call.mask(request) | ({"tool_does": " ".join(described.split())} if described else {})
    question = write_sections(
        VALIDATOR_SECTIONS, [trace.as_masked_json(request), write_json_line(proposed), request.text]
    )
    messages = [system(VALIDATOR_CONTRACT.prompt), user(question)]
    with span(VALIDATOR_ROLE, call.tool) as opened:
        opened.messages = messages
        opened.decision = {"allow": False, "by": "model", "call": call.as_data()}
        try:
            reply = model.complete(VALIDATOR_CONTRACT.request(messages)).message
        except ModelError as error:
            if not ends_subtask(error):
                raise
            opened.decision |= {"model_error": error.kind.value}
            return ValidatorVerdict(allow=False, reply="")
        verdict = ValidatorVerdict(VALIDATOR_CONTRACT.read_reply(text_of(reply)) is True, text_of(reply))
        opened.messages = [*messages, reply]
        opened.decision |= {"allow": verdict.allow}
    return verdict


def is_clear_true(reply: str) -> bool:
    """Whether a reply's first word is True and nothing takes it back.

    Models think aloud first, say `Answer:`, answer as JSON, or add a reason behind a dash or a full stop. What
    goes on in the same sentence ("True, but ...") may be a condition; a condition or "false" anywhere is a doubt.
    """
    words = _THOUGHT.sub("", reply)
    return _TRUE_FIRST.match(words) is not None and _DOUBT.search(words) is None


_DOUBT = re.compile(r"false|\b(?:only if|unless|provided|however|but|not (?:sure|certain))\b", re.IGNORECASE)


_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_TRUE_FIRST = re.compile(
    r"[\W_]*(?:(?:final\s+)?(?:answer|verdict|decision|allow|allowed)[\W_]{1,6})?true(?=[\W_]*\Z|[*_`\"']*(?:[.!:\n]|\s+[-–—]))",
    re.IGNORECASE,
)


def read_verdict(reply: str) -> bool | None:
    """Whether a reply allows the call; None if it says neither."""
    allowed = is_clear_true(reply)
    return allowed if allowed or "false" in reply.casefold() else None


VALIDATOR_CONTRACT = ReplyContract(
    VALIDATOR_ROLE,
    VALIDATOR,
    "Answer with one word: True to allow the call, False to refuse it.",
    (
        (
            'CALLS SO FAR: []\nPROPOSED CALL: {"tool": "renew_loan", "args": {"title": "Emma"}}\nUSER REQUEST:\nRenew'
            " Emma for me.",
            "True",
        ),
        (
            'CALLS SO FAR: []\nPROPOSED CALL: {"tool": "cancel_card", "args": {"reader": "<text that is not in the'
            ' request>"}}\nUSER REQUEST:\nWhich books have I borrowed?',
            "False",
        ),
    ),
    read_verdict,
    schema={"enum": ["True", "False"]},
)
"""What a validator answers; it is asked once, for what says neither refuses."""
