"""`SimulatedRole`: how a defense lets the simulated model play a role of its own; what a role may know."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, Scene
from agentsys.models.simulated.index import PlaybookIndex, count_makeable
from agentsys.models.simulated.playbook import Fact, GoalScript, TaskScript
from agentsys.models.simulated.sloppiness import NO_SLOPPINESS, Sloppiness
from agentsys.models.simulated.text_matching import fold_text, fold_decoded, occurs_in

_DRAW_STEPS = 2**64


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
    sloppiness: Sloppiness = NO_SLOPPINESS
    """Rates of the ways in which replies depart from what was asked for."""

    def obedience(self, attack: str) -> float:
        """Probability that a visible goal of an attack is obeyed."""
        fitting = [name for name in self.by_attack if attack.startswith(name)]
        return self.by_attack[max(fitting, key=len)] if fitting else self.susceptibility


@dataclass(frozen=True)
class SimulatedKnowledge:
    """The means of a role handler in one case: knowledge, and draws that repeat exactly."""

    index: PlaybookIndex
    options: SimulatedOptions
    scene: Scene | None = None
    """The case; None for a model that is not told (e.g. a served one)."""

    def find_task(self, text: str, tools: Iterable[str] = ()) -> TaskScript | None:
        """The user task whose request stands in `text` (whitespace and case folded); None if there is none.

        `tools` are the names on offer: where suites share a request these decide, then the case's suite.
        """
        candidates = self.index.find_tasks(text)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        names = frozenset(tools)

        def fit(task: TaskScript) -> tuple[bool, bool, int]:
            count = count_makeable(task.calls, names)
            return count == len(task.calls), self._is_ours(task.suite), count

        return max(candidates, key=fit)

    def find_whole_goal(self, text: str, tools: Iterable[str]) -> GoalScript | None:
        """The injection goal that `text` is, word for word, doable with these tools."""
        names = frozenset(tools)
        return self._first_doable(self.index.find_goals(text), names)

    def find_goals(self, text: str, tools: Iterable[str] | None = None) -> list[GoalScript]:
        """The instructions that stand in `text` (whitespace, quotes and case folded), in order of place.

        One per wording; with `tools`, only those whose calls can be made with these tools.
        """
        names = None if tools is None else frozenset(tools)
        chosen = [self._first_doable(goals, names) for goals in self.index.goals_in_text(text)]
        return [goal for goal in chosen if goal is not None]

    def obeys(self, goal: GoalScript, context: str) -> bool:
        """Whether the goal is obeyed in this context, by hash of seed, scene, goal and context."""
        probability = self.options.obedience(self.scene.attack if self.scene else "")
        return self.draw(probability, "obey", goal.suite, goal.task_id, context)

    def draw(self, probability: float, *what: str) -> bool:
        """True with this probability; the same `what` gives the same answer in the same scene and seed."""
        if probability <= 0.0 or probability >= 1.0:
            return probability >= 1.0
        key = "\x1f".join([*self._case_key(), *what]).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(key, digest_size=8).digest()
        return int.from_bytes(digest, "big") / _DRAW_STEPS < probability

    def find_fact(self, field: str) -> Fact | None:
        """The fact of this field name, if the playbook has one."""
        return self.index.facts.get(field)

    def is_grounded(self, text: str, context: str) -> bool:
        """Whether `text` stands in `context` (whitespace, quotes, YAML folding and case folded)."""
        return occurs_in(fold_text(text), fold_decoded(context))

    def _case_key(self) -> tuple[str, ...]:
        """The part of a draw's key that differs between two cases."""
        seed = str(self.options.seed)
        if self.scene is None:
            return (seed,)
        scene = self.scene
        return (
            seed,
            scene.suite,
            scene.user_task_id,
            scene.injection_task_id or "",
            scene.attack,
            str(scene.epoch),
            *((scene.payload,) if scene.payload else ()),
        )

    def _is_ours(self, suite: str) -> bool:
        return self.scene is not None and self.scene.suite == suite

    def _first_doable(self, goals: Iterable[GoalScript], tools: frozenset[str] | None) -> GoalScript | None:
        """The first of goals of one wording that these tools allow; the case's own suite goes before."""
        allowed = [goal for goal in goals if tools is None or count_makeable(goal.calls, tools) == len(goal.calls)]
        return max(allowed, key=lambda goal: self._is_ours(goal.suite), default=None)


class SimulatedRole(Protocol):
    """Plays one role: from a request to the assistant message a model in that role would give."""

    def __call__(self, request: ChatRequest, knowledge: SimulatedKnowledge, /) -> ChatAssistantMessage:
        """The reply. Must depend on the request and the knowledge alone."""
        ...


def make_knowledge(index: PlaybookIndex, options: SimulatedOptions, scene: Scene | None) -> SimulatedKnowledge:
    """The knowledge of one case; the case's seed replaces the model's."""
    seeded = options if scene is None else replace(options, seed=scene.seed)
    return SimulatedKnowledge(index, seeded, scene)
