"""The validator (section 5.4) and the rules before it: whether a command may run.

The validator is a model that judges a call from what was asked and called, never from an output. The rules
(the paper's section 7 names them as future work) say what code can decide alone.

A rule says ALLOW, DENY or ASK of a proposed command. The first DENY wins, ALLOW needs all of them, and what
is left is for the validator. Rules know nothing but the request, the call and what the main agent was
given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from agentsys.defense.call_trace import (
    ADDRESS,
    CallTrace,
    TracedCall,
    UserRequest,
    has_closed_format,
    write_json_line,
)
from agentsys.defense.gate import ends_subtask
from agentsys.defense.prompts import VALIDATOR, VALIDATOR_SECTIONS, write_sections
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ModelError, system, text_of, user
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import span


class RuleDecision(Enum):
    """A rule's verdict on a proposal."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class KnownValues:
    """Values that the main agent was given, as far as they are of a closed format and so carry no text."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def add(self, value: Any) -> None:
        """Take note of an accepted value."""
        self._values |= {_format_scalar(leaf) for leaf in iterate_scalars(value) if has_closed_format(leaf)}

    def contains(self, leaf: Any) -> bool:
        """Whether a leaf is one of them."""
        return _format_scalar(leaf) in self._values


@dataclass(frozen=True)
class ProposedCommand:
    """A command that an agent wants to run."""

    call: TracedCall
    undeclared: tuple[str, ...]
    """Arguments that the tool does not have."""
    request: UserRequest
    known: KnownValues
    commands_run: int
    """Commands that workers have run in this subtask."""
    command_limit: int
    """How many they may."""

    def is_grounded(self, leaf: Any) -> bool:
        """Whether an argument's leaf is in the request or reached the main agent in a closed format."""
        text = _format_scalar(leaf)
        return self.request.contains(text) or self.known.contains(leaf)


@dataclass(frozen=True)
class Ruling:
    """The verdict of all rules together."""

    decision: RuleDecision
    rule: str
    """The rule that decided; of an ALLOW, the last."""


def declared_args(proposal: ProposedCommand) -> RuleDecision:
    """A worker that adds arguments which the tool does not have speaks to whoever reads the call."""
    return RuleDecision.DENY if proposal.undeclared else RuleDecision.ALLOW


def command_budget(proposal: ProposedCommand) -> RuleDecision:
    """Reading one output rarely takes a command, and hardly ever two."""
    return RuleDecision.DENY if proposal.commands_run >= proposal.command_limit else RuleDecision.ALLOW


def destination(proposal: ProposedCommand) -> RuleDecision:
    """Where a worker's command goes to, and how much, has to come from the user and not from an output."""
    found = list(_find_destinations(proposal.call.args))
    if not found:
        return RuleDecision.ASK
    return RuleDecision.ALLOW if all(proposal.is_grounded(leaf) for leaf in found) else RuleDecision.DENY


def user_words(proposal: ProposedCommand) -> RuleDecision:
    """A command of which the user said no word at all comes from an output alone."""
    texts = _list_texts(proposal)
    return RuleDecision.DENY if texts and not any(map(proposal.is_grounded, texts)) else RuleDecision.ALLOW


def own_words(proposal: ProposedCommand) -> RuleDecision:
    """A command that says only what the user said needs no judge; any other text needs one.

    So does a short number that names something and that the main agent was not given: the 13 of "June 13" is
    not yet file 13.
    """
    said = all(map(proposal.is_grounded, _list_texts(proposal)))
    return RuleDecision.ALLOW if said and not _has_chance_number(proposal) else RuleDecision.ASK


def _has_chance_number(proposal: ProposedCommand) -> bool:
    named = {
        name: value
        for name, value in proposal.call.args.items()
        if _DESTINATION.search(name) and not _QUANTITY.search(name)
    }
    return any(
        _SHORT_NUMBER.fullmatch(_format_scalar(leaf)) and not proposal.known.contains(leaf)
        for leaf in iterate_scalars(named)
    )


def _list_texts(proposal: ProposedCommand) -> list[str]:
    return [leaf for leaf in iterate_scalars(proposal.call.args) if isinstance(leaf, str)]


def main_destination(proposal: ProposedCommand) -> RuleDecision:
    """The main agent's own command: no destination, or one from the request or a closed format."""
    grounded = all(proposal.is_grounded(leaf) for leaf in _find_destinations(proposal.call.args))
    return RuleDecision.ALLOW if grounded else RuleDecision.ASK


CommandRule = Callable[[ProposedCommand], RuleDecision]
WORKER_RULES: tuple[CommandRule, ...] = (declared_args, command_budget, destination, user_words, own_words)
MAIN_RULES: tuple[CommandRule, ...] = (main_destination,)


def apply_rules(proposal: ProposedCommand) -> Ruling:
    """Apply the rules for the proposal's agent and put their verdicts together."""
    rules = WORKER_RULES if proposal.call.by_worker else MAIN_RULES
    said = [(each(proposal), each.__name__) for each in rules]
    for wanted in (RuleDecision.DENY, RuleDecision.ASK):
        for decision, name in said:
            if decision is wanted:
                return Ruling(decision, name)
    return Ruling(RuleDecision.ALLOW, said[-1][1])


_DESTINATION = re.compile(
    r"(?:^|_)(?:to|cc|bcc|recipients?|receivers?|address(?:es)?|e?mails?|url|uri|link|iban|account|users?|username"
    r"|channels?|participants?|attendees?|amount|price|password|ids?|file|filename|path|phone|hotel|restaurant"
    r"|company)(?:_|$)",
    re.IGNORECASE,
)
"""Names of arguments that say where something goes, what it acts on, or how much it is."""
_QUANTITY = re.compile(r"amount|price", re.IGNORECASE)
"""Those that say how much: there a number means what it says."""
_SHORT_NUMBER = re.compile(r"\d{1,4}")
"""Days, years and counts; longer ones stand in a request for their own sake."""


def _find_destinations(args: Mapping[str, Any]) -> Iterator[Any]:
    for name, value in args.items():
        for leaf in iterate_scalars(value):
            if leaf is not None and (
                _DESTINATION.search(name) or (isinstance(leaf, str) and _is_address(leaf))
            ):
                yield leaf


def _is_address(text: str) -> bool:
    """Whether a text is an address wherever it stands: of a person, an account or a page."""
    return ADDRESS.fullmatch(text) is not None


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


def _format_scalar(leaf: Any) -> str:
    if isinstance(leaf, float) and leaf.is_integer():
        leaf = int(leaf)
    return str(leaf).strip().casefold()


VALIDATOR_ROLE = "validator"


@dataclass(frozen=True)
class ValidatorVerdict:
    """The validator's answer about one call."""

    allow: bool
    reply: str
    """The model's words; for the trace only, never shown to an agent."""


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
        trace: The calls that ran before. A worker's words, in it and in the call, are shown only where the
            request has them too: they may be an output's.
        call: The proposed call.
        described: The description of its tool; empty where it is somebody else's words.
        threshold: How probable True has to be beside False; None: the word decides.

    Returns:
        The verdict; anything but a clear "True" refuses, and so does a model that will not answer.

    Raises:
        ModelError: If the model gave no reply for a reason that is not in the question.
        ConfigError: If a threshold is set and the model's server tells no log-probabilities.
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
"""Alternatives of each token that are asked for: both words are nearly always among them."""


def read_score(tokens: Sequence[Mapping[str, float]]) -> float | None:
    """The probability of True beside False at the first token that is either; None: there is none.

    Raises:
        ConfigError: If no log-probabilities were told.
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


def note_ruling(call: TracedCall, ruling: Ruling) -> None:
    """Put a decision that the rules made without a model into the case's trace."""
    allow = ruling.decision is RuleDecision.ALLOW
    with span(VALIDATOR_ROLE, call.tool) as opened:
        opened.decision = {"allow": allow, "by": f"rule {ruling.rule}", "call": call.as_data()}


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
