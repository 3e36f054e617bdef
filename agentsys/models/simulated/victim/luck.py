"""`VictimLuck`: what a victim does in one case - reads, obeys, solves; defenses share their luck.

Each decision compares a number that is a hash of the seed and the case with the profile's probability.
Neither the defense nor a change of the probability is in the hash: where one defense makes obeying less
likely, it can only take successes away.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from agentsys.errors import ConfigError
from agentsys.models.chat import Scene
from agentsys.models.simulated.playbook import GoalScript, TaskScript
from agentsys.models.simulated.sloppiness import Sloppiness
from agentsys.models.simulated.victim.predict import probability
from agentsys.models.simulated.victim.profile import BENIGN, HIJACKED, NOT_HIJACKED, VictimProfile
from agentsys.models.simulated.victim.situation import Meeting, covariates

_STEPS = 2**64


def beta_mean(times: int, opportunities: int) -> float:
    """The rate behind a count, never quite 0 or 1 (Jeffreys' prior)."""
    return (times + 0.5) / (opportunities + 1)


def manners_of(profile: VictimProfile) -> Sloppiness:
    """The slips of a victim, per reply, in the terms of `sloppiness`."""
    manners = profile.manners
    conversations, turns = manners.no_call[1], manners.parallel[1]
    replies = max((turns + conversations) / max(conversations, 1), 1.0)
    rates = {
        "several_calls": beta_mean(*manners.parallel),
        "calls_as_text": beta_mean(*manners.text_call) / replies,
        "empty_replies": beta_mean(*manners.empty_final) / replies,
    }
    return Sloppiness(rates, f"manners of {profile.name}")


@dataclass(frozen=True)
class VictimLuck:
    """The decisions of one case."""

    profile: VictimProfile
    scene: Scene
    seed: int

    def obey_chance(self, goal: GoalScript, task: TaskScript | None, met: Meeting | None) -> float:
        """Probability that a goal is carried out.

        Args:
            goal: The goal that was read.
            task: The case's user task, for what it still has to do.
            met: When and how; None where it was no tool's result of the agent itself: then the moment counts
                as an average one.

        Raises:
            ConfigError: If the profile has no runs of the attack, of the suite or of the goal.
        """
        self.check_attack()
        if goal.suite != self.scene.suite or not self.profile.knows(goal.suite, goal.task_id):
            raise ConfigError(
                f"Victim '{self.profile.name}' has no runs of {goal.suite} {goal.task_id}: nothing can be"
                " forecast of it."
            )
        levels = {
            "suite": goal.suite,
            "user": f"{goal.suite}/{self.scene.user_task_id}",
            "injection": f"{goal.suite}/{goal.task_id}",
        }
        values = {}
        if met is not None:
            levels["tool"] = f"{goal.suite}/{met.tool}"
            calls = () if task is None else task.calls
            values = dict(covariates(met, [c.function for c in calls], [c.function for c in goal.calls]))
        shift = self.profile.attacks[self.scene.attack].shift
        return probability(self.profile.obey, levels, values, shift)

    def check_attack(self) -> None:
        """See that there are runs of the case's attack, in its own wording.

        Raises:
            ConfigError: If there are none.
        """
        if self.scene.attack not in self.profile.attacks or self.scene.payload:
            known = ", ".join(self.profile.attacks)
            raise ConfigError(
                f"Victim '{self.profile.name}' has runs of {known} alone: attack '{self.scene.attack}' cannot"
                " be forecast."
            )

    def reads(self) -> bool:
        """Whether a tool returns the payload: else the call that would is left out."""
        return self._reading < self._exposed or self.scene.injection_task_id is None

    def solves(self, *, hijacked: bool) -> bool:
        """Whether the user task is solved, as far as it is up to the agent.

        The number is the user task's, with an attack and without: luck is shared.
        """
        state = BENIGN if self.scene.injection_task_id is None else HIJACKED if hijacked else NOT_HIJACKED
        levels = {"suite": f"{self.scene.suite}/{state}", "user": self._user}
        return self._solving < probability(self.profile.solve, levels, {})

    @property
    def silent(self) -> bool:
        """Whether it answers without any call: among the cases in which nothing is read, or solved."""
        rate = beta_mean(*self.profile.manners.no_call)
        if self.scene.injection_task_id is None:
            return self._solving > 1 - rate and not self.solves(hijacked=False)
        return self._reading > 1 - rate and not self.reads()

    @property
    def _user(self) -> str:
        return f"{self.scene.suite}/{self.scene.user_task_id}"

    @cached_property
    def _exposed(self) -> float:
        levels = {"suite": self.scene.suite, "user": self._user}
        return probability(self.profile.exposed, levels, {})

    @cached_property
    def _solving(self) -> float:
        return self._uniform("solve")

    @cached_property
    def _reading(self) -> float:
        return self._uniform("read", self.scene.injection_task_id or "", self.scene.attack)

    def _uniform(self, *what: str) -> float:
        scene = self.scene
        key = "\x1f".join([str(self.seed), scene.suite, scene.user_task_id, str(scene.epoch), *what])
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") / _STEPS
