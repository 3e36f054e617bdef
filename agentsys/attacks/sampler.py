"""`SamplerAttack`: several texts from one attacker, none of which learns from another (pass@n).

For attackers that were trained to write injections (RL-Hammer, PISmith, ...) and for the share of success
that an attacker has at its first, fifth or tenth try.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsys.attacks.search import Attempt, AttemptPosition, SearchTask, SearchTarget
from agentsys.attacks.search_options import SearchOptions, check_count
from agentsys.attacks.searched import AttackerSearch


class SamplerAttack(AttackerSearch):
    """Independent samples, up to the first that succeeds. The start text is shown and not tried.

    Args:
        samples: Number of texts at most.
        name: The attack's name.
        options: Any of `SearchOptions`, by name.

    Raises:
        ConfigError: If an option is out of range or the artefact cannot be read.
    """

    literal = True

    def __init__(self, samples: int = 10, *, name: str = "sampler", **options: Any) -> None:
        super().__init__(name, SearchOptions(**options))
        self.samples = self.budget = check_count("attack.samples", samples)

    def search(self, quest: SearchTask, target: SearchTarget) -> Sequence[Attempt]:
        """One sample after the other; none where the attacker's first conversations give no text."""
        made = [target.attempt(AttemptPosition(1, 1, None), lambda model: self.ask_first_proposal(model, quest))]
        while not self.ends_search(made[0]) and len(made) < self.samples:
            place = AttemptPosition(len(made) + 1, 1, None)
            propose = self.make_asker(quest, self.build_attacker(quest).build_candidate_request(place, ()))
            made.append(target.attempt(place, propose))
            if made[-1].success:
                break
        return made
