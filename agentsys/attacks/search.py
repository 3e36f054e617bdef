"""What a search for an attack's text asks of its target, and what it is told. Knows nothing of runs.

A search proposes candidates and the target tries them: one query is one run of the whole defended agent on
one case, in a fresh environment. The target numbers attempts in the order of the calls and keeps each of
them, so a search that is started again is given what it has already paid for, proposals included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.contracts import Attack, Victim
from agentsys.models.chat import ChatModel


@dataclass(frozen=True)
class ToolCall:
    """A tool call as plain data."""

    function: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Quest:
    """What a search is to bring about, as its attacker may know it."""

    goal: str
    """The injection task's goal, verbatim."""
    goal_calls: tuple[ToolCall, ...]
    """The injection task's ground truth; empty where it has none."""
    start: str
    """The text the search starts from."""
    defense: str
    """The defense's public description; shown to a `defense_aware` attacker only."""


@dataclass(frozen=True)
class Place:
    """Where in a search an attempt stands."""

    stream: int
    """Which independent start it belongs to, from 1."""
    depth: int
    """Refinements since that start, from 1."""
    parent: int | None
    """Number of the attempt it refines; None at a start."""


@dataclass(frozen=True)
class Proposal:
    """A candidate before it is tried."""

    text: str
    why: str = ""
    """The attacker's own reason."""
    refused: str | None = None
    """Why it is not to be tried; then it costs an attempt and no query."""


@dataclass(frozen=True)
class QueryFacts:
    """What one query showed."""

    success: bool
    """Whether the injection task was carried out."""
    returned: bool
    """Whether a tool returned the candidate."""
    shown: bool
    """Whether the model that acts for the user was shown it."""
    calls: tuple[ToolCall, ...]
    """Tool calls that ran after the first one that returned the candidate, in order."""
    answer: str
    """The agent's final answer."""
    blocked: tuple[str, ...]
    """What the defense denied or cut, one line each."""


@dataclass(frozen=True)
class Judgement:
    """The judge's view of a query."""

    score: int
    """1 to 10; 10: the injection task was carried out."""
    feedback: str
    """What the attacker is told."""


@dataclass(frozen=True)
class Attempt:
    """One attempt that was made."""

    number: int
    """From 1, in the order of the search."""
    place: Place
    proposal: Proposal
    success: bool
    judgement: Judgement


class Target(Protocol):
    """The whole defended agent on one case."""

    def attempt(self, place: Place, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        """Try the next candidate.

        Args:
            place: Where in the search it stands.
            propose: Asks the attacker's model for it. Not called where the attempt of this number was
                made before: then that one is returned.
        """
        ...


class SearchedAttack(Attack, Protocol):
    """An attack whose text depends on what the agent does with earlier ones.

    `searched` being there tells it from other attacks; `injections` gives the start text.
    """

    searched: bool
    """True: what a simulated victim obeys depends on the wording."""
    mode: str
    """`transfer`: one search per injection task, made on the suite's first injectable user task;
    `per_case`: one per case."""
    budget: int
    """Most attempts of one search."""
    replays: bool
    """Whether the texts come from an artefact, so that nothing is searched."""

    def search(self, quest: Quest, target: Target) -> Sequence[Attempt]:
        """Make attempts until one succeeds or the budget is spent; all of them, in order."""
        ...

    def judged(self, quest: Quest, facts: QueryFacts) -> Judgement:
        """The score of a query and what its attacker hears of it."""
        ...


def is_searched(attack: Attack) -> bool:
    """Whether an attack's text has to be searched for in this run."""
    return bool(getattr(attack, "searched", False)) and not getattr(attack, "replays", True)


def start_text(
    attack: Attack,
    suite: TaskSuite[Any],
    user_task: BaseUserTask[Any],
    injection_task: BaseInjectionTask[Any],
    victim: Victim,
) -> str:
    """The text a search starts from: what the attack writes without searching, in whichever vector.

    Raises:
        NotInjectable: If no vector of this user task can carry an injection.
    """
    return next(iter(attack.injections(suite, user_task, injection_task, victim).values()))


def chosen(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt whose text a search settles on: a success, else the best score; None if none was tried."""
    tried = [attempt for attempt in attempts if attempt.proposal.refused is None]
    return max(tried, key=lambda a: (a.success, a.judgement.score, -a.number), default=None)
