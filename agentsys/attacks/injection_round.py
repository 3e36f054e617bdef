"""`InjectionRound`: another attack, kept to what the agent first reads in a chosen tool result.

A controlled version of what the AgentSys paper's Table 1 observes: there the round in which an
injection comes is whatever the task makes it; here it is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentdojo.types import get_text_content_as_str

from agentsys.abilities import PicksPairs
from agentsys.attacks.attack_search import is_searched, searches_texts
from agentsys.attacks.injection_vectors import cache_per_task, make_canary, run_ground_truth
from agentsys.contracts import Attack, AttackKind, InjectionTask, NotInjectable, Suite, UserTask, Victim
from agentsys.errors import ConfigError


class InjectionRound:
    """Writes what `base` writes, into the vectors first seen in the `round`-th tool result, from 1.

    All other vectors keep the benchmark's defaults. Rounds are those of the user task's ground truth,
    executed cleanly; an agent that makes other calls may meet the injection elsewhere, which its
    record tells (`exposure.raw_round`).
    """

    name = "injection_round"
    left_out = "has nowhere to write in"

    def __init__(self, base: Attack, round: int) -> None:
        if isinstance(round, bool) or not isinstance(round, int) or round < 1:
            raise ConfigError(f"attack.round = {round!r}: give the number of a tool result, from 1.")
        if not isinstance(base, Attack):
            raise ConfigError(f"attack.base = {base!r}: give an attack's name, e.g. important_instructions.")
        if base.kind is AttackKind.NONE:
            raise ConfigError(f"attack.base: '{base.name}' writes nothing; name another attack.")
        if is_searched(base):
            raise ConfigError(
                f"attack.base: '{base.name}' searches for its texts, which cannot be done round by round; run"
                " the search first and give its saved texts, in a YAML of your own like attack/cached.yaml."
            )
        self.base = base
        self.searched = searches_texts(base)
        self.replays = True
        self.round = round
        self.kind = base.kind

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """The base's texts, less those for vectors of other rounds.

        Raises:
            NotInjectable: If the base writes into no vector first seen in this round.
        """
        there = self._select_vectors(suite, user_task)
        texts = self.base.injections(suite, user_task, injection_task, victim)
        kept = self._drop_late_texts(suite, user_task, {v: text for v, text in texts.items() if v in there})
        if not kept:
            raise NotInjectable(
                f"{suite.name} {user_task.ID} first shows no vector of '{self.base.name}' in tool result"
                f" {self.round}."
            )
        return kept

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """Whether a vector with the goal in it is first seen in this round, and the base takes the pair."""
        base = self.base
        if isinstance(base, PicksPairs) and not base.applies_to(suite, user_task, injection_task):
            return False
        # The goal's words stand for the text, which is not known without the victim's names; what would
        # break the environment's file is left out of them.
        words = injection_task.GOAL.replace('"', "'").replace("\\", "/")
        goal = dict.fromkeys(self._select_vectors(suite, user_task), words)
        return bool(self._drop_late_texts(suite, user_task, goal))

    def _select_vectors(self, suite: Suite, user_task: UserTask) -> list[str]:
        return [
            vector for vector, number in find_first_rounds(suite, user_task).items() if number == self.round
        ]

    def _drop_late_texts(self, suite: Suite, user_task: UserTask, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts that are still first seen in this round when they are what tools look through.

        A text may hold the very words that an earlier search looks for: an e-mail that asks for "the
        Facebook security code" is found by the user's search for one, one round too early.
        """
        if self.round == 1 or not texts:
            return dict(texts)
        try:
            rounds = find_rounds(suite, user_task, texts)
        except Exception:  # noqa: BLE001 - a text that breaks the environment: the run meets and books it
            return dict(texts)
        return {vector: text for vector, text in texts.items() if rounds.get(vector) == self.round}


@cache_per_task
def find_first_rounds(suite: Suite, user_task: UserTask) -> Mapping[str, int]:
    """Injection vector -> number of the first tool result that shows it; worked out once per task.

    The ground truth is executed once, in an environment whose vectors hold canaries and nothing else.

    Returns:
        Numbers from 1. Vectors that no result shows are absent.
    """
    return find_rounds(suite, user_task, dict.fromkeys(suite.get_injection_vector_defaults(), ""))


def find_rounds(suite: Suite, user_task: UserTask, texts: Mapping[str, str]) -> dict[str, int]:
    """The same with texts in some vectors, a canary behind each: results may depend on what a tool looks through.

    Raises:
        Exception: What the suite raises if a text breaks its environment.
    """
    marked = {vector: f"{text}{make_canary(vector)}" for vector, text in texts.items()}
    found: dict[str, int] = {}
    for number, message in enumerate(run_ground_truth(suite, user_task, marked), start=1):
        for vector in texts:
            if make_canary(vector) in get_text_content_as_str(message["content"] or []):
                found.setdefault(vector, number)
    return found
