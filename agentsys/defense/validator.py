"""The validator (section 5.4): a model that judges a command from the request and the calls, never from an output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentsys.defense.gate import ends_subtask
from agentsys.defense.prompts import VALIDATOR, VALIDATOR_SECTIONS, format_sections
from agentsys.defense.tool_turn import CallTrace, TracedCall, format_json_line
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ModelError, system, text_of, user
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import span
from agentsys.models.untrusted import UserRequest

VALIDATOR_ROLE = "validator"


@dataclass(frozen=True)
class ValidatorVerdict:
    """The validator's answer about one call."""

    allow: bool
    reply: str
    """The model's reply; for the trace only, never shown to an agent."""


def validate(
    model: ChatModel,
    request: UserRequest,
    trace: CallTrace,
    call: TracedCall,
    described: str = "",
    threshold: float | None = None,
) -> ValidatorVerdict:
    """Ask whether a call serves the user's request.

    Args:
        model: The model that judges.
        request: The user's request.
        trace: The calls that ran before. A worker's words, in it and in the call, are masked unless the request
            has them too: they may come from an output.
        call: The proposed call.
        described: The description of its tool; empty for a foreign tool, whose description is not trusted.
        threshold: Least probability of True against False; None: the word decides.

    Returns:
        The verdict; anything but a clear "True" refuses, and so does an error that the question itself caused.

    Raises:
        ModelError: If the model gave no reply for a reason other than the question.
        ConfigError: If a threshold is set and the model's server returns no log-probabilities.
    """
    proposed = call.mask(request) | ({"tool_does": " ".join(described.split())} if described else {})
    question = format_sections(
        VALIDATOR_SECTIONS, [trace.as_masked_json(request), format_json_line(proposed), request.text]
    )
    messages = [system(VALIDATOR_CONTRACT.prompt), user(question)]
    with span(VALIDATOR_ROLE, call.tool) as opened:
        opened.messages = messages
        opened.decision = {"allow": False, "by": "model", "call": call.as_data()}
        try:
            asked = VALIDATOR_CONTRACT.request(messages)
            answer = model.complete(asked if threshold is None else replace(asked, logprobs=_ALTERNATIVES))
        except ModelError as error:
            if not ends_subtask(error):
                raise
            opened.decision |= {"model_error": error.kind.value}
            return ValidatorVerdict(allow=False, reply="")
        words = text_of(answer.message)
        verdict = ValidatorVerdict(VALIDATOR_CONTRACT.read_reply(words) is True, words)
        opened.messages = [*messages, answer.message]
        if threshold is not None:
            score = read_score(answer.logprobs)
            opened.decision |= {"score": score}
            verdict = ValidatorVerdict(score is not None and score >= threshold, words)
        opened.decision |= {"allow": verdict.allow}
    return verdict


_ALTERNATIVES = 5
"""Number of alternatives requested for each token: True and False are nearly always among five."""


def read_score(tokens: Sequence[Mapping[str, float]]) -> float | None:
    """Probability of True against False, in [0, 1], at the first token that is either; None if there is none.

    Raises:
        ConfigError: If the server returned no log-probabilities.
    """
    if not tokens:
        raise ConfigError(
            "defense.validator_threshold needs a server that tells log-probabilities, and this model's tells none;"
            " take defense=agentsys, or another server."
        )
    for token in tokens:
        odds = dict.fromkeys(("true", "false"), 0.0)
        for text, logprob in token.items():
            word = text.strip(" \n\"'`*.").casefold()
            if word in odds:
                odds[word] += math.exp(logprob)
        if any(odds.values()):
            return odds["true"] / sum(odds.values())
    return None


def is_clear_true(reply: str) -> bool:
    """True if a reply's first word is True and nothing in it withdraws that.

    Models think aloud first, write `Answer:`, answer as JSON, or add a reason behind a dash or a full stop. The rest
    of the same sentence ("True, but ...") may be a condition; a condition or "false" anywhere counts as a doubt.
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
    """Return True if a reply allows the call, False if it refuses it, None if it says neither."""
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
"""Form of the validator's reply. It is never asked again: a reply that says neither refuses the call."""
