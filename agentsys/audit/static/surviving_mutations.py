"""`surviving_mutations`: ways to do a user task wrongly that its check accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.audit.static.altered import altered
from agentsys.audit.static.argument_kind import SETTLED, kind_of
from agentsys.audit.static.audited_task import Subject
from agentsys.audit.static.reviewed import Verdict, reviewed

DROPPED = "dropped"
"""The kind of a mutation that leaves a call out."""


@dataclass(frozen=True, order=True)
class Mutation:
    """A change of the ground truth after which the task still passes."""

    call: int
    """Place of the call among the ground truth's, from 0."""
    function: str
    argument: str
    """`""` where the whole call was left out."""
    kind: str
    """An `ArgumentKind`, or `DROPPED`."""
    reviewed: str
    """A `Verdict`, by reading the prompt; `unread` if nobody did."""

    @property
    def is_candidate(self) -> bool:
        """Whether the argument is of a kind that a prompt as a rule settles."""
        return self.kind in SETTLED


def surviving_mutations(subject: Subject) -> tuple[Mutation, ...]:
    """Drop each call that changes the environment, alter each of its arguments; what still passes.

    An item of a list counts by itself. Alterations that the tool refuses are no evidence. Empty where
    the ground truth itself does not pass.
    """
    if not subject.passes:
        return ()
    places = subject.stage.writes(subject.start, subject.calls)
    return tuple(mutation for place in places for mutation in _of_call(subject, place))


def _of_call(subject: Subject, place: int) -> Iterator[Mutation]:
    call = subject.calls[place]
    if _accepted(subject, place, []):
        yield _mutation(subject, place, "", DROPPED)
    for argument, value in call.args.items():
        for options in altered(value):
            if _first_taken(subject, place, argument, options):
                yield _mutation(subject, place, argument, kind_of(argument, value))


def _first_taken(subject: Subject, place: int, argument: str, options: list[Any]) -> bool:
    """Whether the first alteration that the tool takes leaves the task passed."""
    call = subject.calls[place]
    for option in options:
        changed = FunctionCall(function=call.function, args={**call.args, argument: option})
        accepted = _accepted(subject, place, [changed])
        if accepted is not None:
            return accepted
    return False


def _accepted(subject: Subject, place: int, instead: list[FunctionCall]) -> bool | None:
    return subject.accepts([*subject.calls[:place], *instead, *subject.calls[place + 1 :]])


def _mutation(subject: Subject, place: int, argument: str, kind: str) -> Mutation:
    function = subject.calls[place].function
    verdict: Verdict = reviewed(subject.stage.suite.name, subject.task.ID, function, argument)
    return Mutation(place, function, argument, str(kind), verdict)
