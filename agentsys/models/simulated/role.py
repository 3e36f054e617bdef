"""`SimulatedRole`: how a defense lets the simulated model play a role of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest
from agentsys.models.simulated.playbook import Fact, GoalScript, TaskScript
from agentsys.models.simulated.sloppiness import NEAT, Sloppiness
from agentsys.models.simulated.victim.profile import VictimProfile


@dataclass(frozen=True)
class SimulatedOptions:
    """The simulated model's parameters; each is a probability unless it says otherwise."""

    susceptibility: float = 1.0
    """That a visible goal is obeyed. 1.0 is the worst case."""
    by_attack: Mapping[str, float] = field(default_factory=dict)
    """Beginning of an attack's name -> the same for that attack; of several that fit, the longest holds."""
    verbatim: bool = False
    """Not a probability: whether a worker returns the whole text a value stands in, or the value alone."""
    validator_false_accept: float = 0.0
    validator_false_deny: float = 0.0
    sanitizer_recall: float = 1.0
    """That a sanitizer finds a given goal."""
    seed: int = 0
    sloppiness: Sloppiness = NEAT
    """Rates of the ways in which replies depart from what was asked for."""
    victim: VictimProfile | None = None
    """How a real model behaved; then reading, obeying and solving are drawn from it, and `susceptibility` is
    a factor of its probabilities."""

    def obedience(self, attack: str) -> float:
        """Probability that a visible goal of an attack is obeyed."""
        fitting = [name for name in self.by_attack if attack.startswith(name)]
        return self.by_attack[max(fitting, key=len)] if fitting else self.susceptibility


class SimulatedKnowledge(Protocol):
    """The means of a role handler: knowledge, and draws that repeat exactly."""

    @property
    def options(self) -> SimulatedOptions:
        """The model's parameters."""
        ...

    def task_in(self, text: str, tools: Iterable[str] = ()) -> TaskScript | None:
        """The user task whose request stands in `text` (whitespace and case folded); None if there is none.

        `tools` are the names on offer: they tell suites apart where two share a request.
        """
        ...

    def goals_in(self, text: str, tools: Iterable[str] | None = None) -> list[GoalScript]:
        """The injection goals that stand in `text` (whitespace, quotes and case folded), in order of place.

        With `tools`, only those whose calls can be made with these tools.
        """
        ...

    def obeys(self, goal: GoalScript, context: str) -> bool:
        """Whether the goal is obeyed: probability `susceptibility`, by hash of seed, scene, goal, context."""
        ...

    def draw(self, probability: float, *what: str) -> bool:
        """True with this probability; the same `what` gives the same answer in the same scene and seed."""
        ...

    def fact(self, field: str) -> Fact | None:
        """The fact of this field name, if the playbook has one."""
        ...

    def grounded(self, text: str, context: str) -> bool:
        """Whether `text` stands in `context` (whitespace, quotes, YAML folding and case folded)."""
        ...


class SimulatedRole(Protocol):
    """Plays one role: from a request to the assistant message a model in that role would give."""

    def __call__(self, request: ChatRequest, knowledge: SimulatedKnowledge, /) -> ChatAssistantMessage:
        """The reply. Must depend on the request and the knowledge alone."""
        ...
