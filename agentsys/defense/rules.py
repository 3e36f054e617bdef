"""Rules before the validator (the paper's section 7 names them as future work): what code can decide alone.

A rule says ALLOW, DENY or ASK of a proposed command. The first DENY wins, ALLOW needs all of them, and what
is left is for the validator. They know nothing but the request, the call and what the main agent was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentsys.defense.call_trace import TracedCall
from agentsys.defense.grounding import Request
from agentsys.defense.reading.closed_formats import ADDRESS, is_closed


class Decision(Enum):
    """A rule's verdict on a proposal."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class Known:
    """Values that the main agent was given, as far as they are of a closed format and so carry no text."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def add(self, value: Any) -> None:
        """Take note of an accepted value."""
        self._values |= {_plain(leaf) for leaf in leaves(value) if is_closed(leaf)}

    def holds(self, leaf: Any) -> bool:
        """Whether a leaf is one of them."""
        return _plain(leaf) in self._values


@dataclass(frozen=True)
class ProposedCommand:
    """A command that an agent wants to run."""

    call: TracedCall
    undeclared: tuple[str, ...]
    """Arguments that the tool does not have."""
    request: Request
    known: Known
    run: int
    """Commands that workers have run in this subtask."""
    limit: int
    """How many they may."""

    def grounded(self, leaf: Any) -> bool:
        """Whether an argument's leaf is in the request or reached the main agent in a closed format."""
        text = _plain(leaf)
        return self.request.holds(text) or self.known.holds(leaf)


@dataclass(frozen=True)
class Ruling:
    """The verdict of all rules together."""

    decision: Decision
    rule: str
    """The rule that decided; of an ALLOW, the last."""


def declared_args(proposal: ProposedCommand) -> Decision:
    """A worker that adds arguments which the tool does not have speaks to whoever reads the call."""
    return Decision.DENY if proposal.undeclared else Decision.ALLOW


def command_budget(proposal: ProposedCommand) -> Decision:
    """Reading one output rarely takes a command, and hardly ever two."""
    return Decision.DENY if proposal.run >= proposal.limit else Decision.ALLOW


def destination(proposal: ProposedCommand) -> Decision:
    """Where a worker's command goes to, and how much, has to come from the user and not from an output."""
    found = list(_destinations(proposal.call.args))
    if not found:
        return Decision.ASK
    return Decision.ALLOW if all(proposal.grounded(leaf) for leaf in found) else Decision.DENY


def user_words(proposal: ProposedCommand) -> Decision:
    """A command of which the user said no word at all comes from an output alone."""
    texts = _texts(proposal)
    return Decision.DENY if texts and not any(map(proposal.grounded, texts)) else Decision.ALLOW


def own_words(proposal: ProposedCommand) -> Decision:
    """A command that says only what the user said needs no judge; any other text needs one.

    So does a short number that names something and that the main agent was not given: the 13 of "June 13" is
    not yet file 13.
    """
    said = all(map(proposal.grounded, _texts(proposal)))
    return Decision.ALLOW if said and not _numbered_by_chance(proposal) else Decision.ASK


def _numbered_by_chance(proposal: ProposedCommand) -> bool:
    named = {
        name: value
        for name, value in proposal.call.args.items()
        if _DESTINATION.search(name) and not _QUANTITY.search(name)
    }
    return any(
        _SHORT_NUMBER.fullmatch(_plain(leaf)) and not proposal.known.holds(leaf) for leaf in leaves(named)
    )


def _texts(proposal: ProposedCommand) -> list[str]:
    return [leaf for leaf in leaves(proposal.call.args) if isinstance(leaf, str)]


def main_destination(proposal: ProposedCommand) -> Decision:
    """The main agent's own command: no destination, or one from the request or a closed format."""
    grounded = all(proposal.grounded(leaf) for leaf in _destinations(proposal.call.args))
    return Decision.ALLOW if grounded else Decision.ASK


Rule = Callable[[ProposedCommand], Decision]
OF_WORKERS: tuple[Rule, ...] = (declared_args, command_budget, destination, user_words, own_words)
OF_MAIN: tuple[Rule, ...] = (main_destination,)


def rule(proposal: ProposedCommand) -> Ruling:
    """Apply the rules for the proposal's agent and put their verdicts together."""
    rules = OF_WORKERS if proposal.call.by_worker else OF_MAIN
    said = [(each(proposal), each.__name__) for each in rules]
    for wanted in (Decision.DENY, Decision.ASK):
        for decision, name in said:
            if decision is wanted:
                return Ruling(decision, name)
    return Ruling(Decision.ALLOW, said[-1][1])


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


def _destinations(args: Mapping[str, Any]) -> Iterator[Any]:
    for name, value in args.items():
        for leaf in leaves(value):
            if leaf is not None and (_DESTINATION.search(name) or (isinstance(leaf, str) and _points(leaf))):
                yield leaf


def _points(text: str) -> bool:
    """Whether a text is an address wherever it stands: of a person, an account or a page."""
    return ADDRESS.fullmatch(text) is not None


def leaves(value: Any) -> Iterator[Any]:
    """The scalars inside arguments, whatever holds them."""
    if isinstance(value, Mapping):
        for child in value.values():
            yield from leaves(child)
    elif isinstance(value, list | tuple | set):
        for child in value:
            yield from leaves(child)
    else:
        yield value


def _plain(leaf: Any) -> str:
    if isinstance(leaf, float) and leaf.is_integer():
        leaf = int(leaf)
    return str(leaf).strip().casefold()
