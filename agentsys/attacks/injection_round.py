"""`InjectionRound`: limits another attack to the vectors that the agent first reads in a chosen tool result.

A controlled version of the AgentSys paper's Table 1, where the task decides the round of an injection; here it is
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentdojo.types import get_text_content_as_str

from agentsys.attacks.attack_search import is_searched
from agentsys.attacks.injection_vectors import cache_per_task, make_canary, run_ground_truth
from agentsys.contracts import Attack, AttackKind, InjectionTask, NotInjectable, Suite, UserTask, Victim
from agentsys.errors import ConfigError


class InjectionRound(Attack):
    """Writes what `base` writes, into the vectors first seen in the `round`-th tool result, from 1.

    All other vectors keep the benchmark's defaults. Rounds are those of a clean run of the user task's ground truth;
    an agent that makes other calls may meet the injection in another round (`exposure.raw_round` in its record).
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
        self.searched = base.searched
        self.round = round
        self.kind = base.kind

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """Return the base's texts for the vectors of this round.

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
        """True if the base applies to the pair, and a vector with the goal in it is first seen in this round."""
        base = self.base
        if not base.applies_to(suite, user_task, injection_task):
            return False
        # The goal stands in for the text, which needs the victim's names; characters that would break the
        # environment's file are replaced.
        words = injection_task.GOAL.replace('"', "'").replace("\\", "/")
        goal = dict.fromkeys(self._select_vectors(suite, user_task), words)
        return bool(self._drop_late_texts(suite, user_task, goal))

    def _select_vectors(self, suite: Suite, user_task: UserTask) -> list[str]:
        return [
            vector for vector, number in find_first_rounds(suite, user_task).items() if number == self.round
        ]

    def _drop_late_texts(self, suite: Suite, user_task: UserTask, texts: Mapping[str, str]) -> dict[str, str]:
        """Drop texts that their own words make visible in another round.

        A text may contain the words that an earlier call searches for: an e-mail that asks for "the Facebook
        security code" is found by the user's search for one, one round too early.
        """
        if self.round == 1 or not texts:
            return dict(texts)
        try:
            rounds = find_rounds(suite, user_task, texts)
        except Exception:  # noqa: BLE001 - a text that breaks the environment is an error of the run
            return dict(texts)
        return {vector: text for vector, text in texts.items() if rounds.get(vector) == self.round}


@cache_per_task
def find_first_rounds(suite: Suite, user_task: UserTask) -> Mapping[str, int]:
    """Injection vector -> number of the first tool result that shows it; computed once per task.

    The ground truth is executed once, in an environment whose vectors hold only canaries.

    Returns:
        Numbers from 1. Vectors that no result shows are absent.
    """
    return find_rounds(suite, user_task, dict.fromkeys(suite.get_injection_vector_defaults(), ""))


def find_rounds(suite: Suite, user_task: UserTask, texts: Mapping[str, str]) -> dict[str, int]:
    """Find the first rounds with texts, each followed by a canary, in some vectors: texts may change tools' results.

    Raises:
        Exception: What the suite raises if a text breaks its environment.
    """
    marked = {vector: f"{text}{make_canary(vector)}" for vector, text in texts.items()}
    rounds: dict[str, int] = {}
    for number, message in enumerate(run_ground_truth(suite, user_task, marked), start=1):
        for vector in texts:
            if make_canary(vector) in get_text_content_as_str(message["content"] or []):
                rounds.setdefault(vector, number)
    return rounds
