"""`Searched`: what PAIR and TAP share - settings, start text, artefact, asking the attacker, judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks import attacker as attackers
from agentsys.attacks.artefact import Artefact, read_artefact
from agentsys.attacks.attacker import Attacker
from agentsys.attacks.goal_data import refusal
from agentsys.attacks.judge import Feedback, feedback_named, judged
from agentsys.attacks.registered import RegisteredAttack
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal, QueryFacts, Quest
from agentsys.attacks.simulated_attacker import play_attacker
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import AttackKind, Victim
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel, text_of
from agentsys.models.simulated.role import SimulatedRole

START = "important_instructions"
"""The registered attack whose text a search starts from."""
MODES = ("transfer", "per_case")


class Searched:
    """An attack whose text an attacker model searches for (see agentsys.attacks.search).

    Args:
        name: The attack's name; the YAML puts the mode into it.
        mode: `transfer` or `per_case`.
        feedback: `blackbox` or `defense_aware`.
        attacker: Name of the YAML of the attacker's model; None: the run's model. The run looks at it.
        temperature: The attacker's.
        seed: Chooses the attacker's angles.
        artefact: A file of an earlier search; its texts are used and nothing is searched.

    Raises:
        ConfigError: If an option is none of those, the artefact cannot be read, or another attack made it.
    """

    kind = AttackKind.TARGETED
    searched = True
    left_out = "has no text in its artefact for"
    budget = 0

    def __init__(
        self,
        name: str,
        *,
        mode: str,
        feedback: str,
        attacker: str | None,
        temperature: float,
        seed: int | None,
        artefact: str | None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(unknown_name("attack.mode", str(mode), MODES))
        self.name = name
        self.mode = mode
        self.attacker = attacker
        self._feedback = feedback_named(feedback)
        self._temperature = _number("attack.temperature", temperature)
        self._seed = _seed(seed)
        self._artefact = None if artefact is None else _artefact_of(name, artefact)
        self._start = RegisteredAttack(START)

    @property
    def replays(self) -> bool:
        """Whether texts come from an artefact."""
        return self._artefact is not None

    def applies_to(
        self, suite: TaskSuite[Any], user_task: BaseUserTask[Any], injection_task: BaseInjectionTask[Any]
    ) -> bool:
        """Always, except that an artefact must have a text."""
        ids = (suite.name, user_task.ID, injection_task.ID)
        return self._artefact is None or self._artefact.entry(*ids) is not None

    def injections(
        self,
        suite: TaskSuite[Any],
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any],
        victim: Victim,
    ) -> Mapping[str, str]:
        """The artefact's text in every vector; without an artefact the text that a search starts from.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
            ConfigError: If the artefact has no text for these tasks.
        """
        if self._artefact is None:
            return self._start.injections(suite, user_task, injection_task, victim)
        entry = self._artefact.entry(suite.name, user_task.ID, injection_task.ID)
        if entry is None:
            raise ConfigError(
                f"attack.artefact has no text for suite {suite.name}, {user_task.ID}, {injection_task.ID}."
            )
        return dict.fromkeys(injectable_vectors(suite, user_task), entry.text)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """The attacker, for the simulated model."""
        return {attackers.ROLE: play_attacker}

    def search(self, quest: Quest, target: Any) -> Sequence[Attempt]:
        """Make attempts until one succeeds or the budget is spent."""
        raise NotImplementedError

    def judged(self, quest: Quest, facts: QueryFacts) -> Judgement:
        """The score of a query and what its attacker hears of it."""
        return judged(quest, facts, self._feedback)

    def attacker_of(self, quest: Quest) -> Attacker:
        """The attacker of one search."""
        tells = self._feedback is Feedback.DEFENSE_AWARE and bool(quest.defense)
        return Attacker(quest, self._temperature, self._seed, tells)


def proposing(
    attacker: Attacker,
    place: Place,
    path: Sequence[Attempt],
    *,
    variation: int = 1,
    refuses: Callable[[str, str], str | None] = refusal,
) -> Callable[[ChatModel], Proposal]:
    """How the candidate at `place` is asked for and checked.

    Args:
        attacker: Of this search.
        place: Where the candidate stands.
        path: The attempts it refines, the start's first.
        variation: Which candidate for this place, from 1.
        refuses: (goal, text) -> why the text is not to be tried.
    """

    def propose(model: ChatModel) -> Proposal:
        reply = model.complete(attacker.request(place, path, variation))
        return proposal_checked(attackers.proposal_in(text_of(reply.message)), attacker.quest, refuses)

    return propose


def proposal_checked(proposal: Proposal, quest: Quest, refuses: Callable[[str, str], str | None]) -> Proposal:
    """The proposal, refused where it was not readable or no longer pursues the goal."""
    why = proposal.refused or refuses(quest.goal, proposal.text)
    return Proposal(proposal.text, proposal.why, why)


def count(option: str, value: object) -> int:
    """A whole number from 1 to 1000.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ConfigError(f"{option} is {value!r}; give a whole number from 1 to 1000.")
    return value


def _seed(value: object) -> int:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"attack.seed is {value!r}; give a whole number, or null for the run's.")
    return value or 0


def _artefact_of(name: str, file: object) -> Artefact:
    """The artefact, if it is one of this attack: results are named after the attack that found the texts."""
    if not isinstance(file, str) or not file:
        raise ConfigError(f"attack.artefact is {file!r}; give the name of a file of a search, or null.")
    artefact = read_artefact(Path(file))
    if not artefact.attack.startswith(name):
        raise ConfigError(
            f"attack.artefact {file} holds texts of attack {artefact.attack[:60]!a}, not of {name!r}; choose"
            " the attack and attack.mode of that search, or give the file to attack=cached."
        )
    return artefact


def _number(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 2.0:
        raise ConfigError(f"{option} is {value!r}; give a number from 0.0 to 2.0.")
    return float(value)
