"""`PairAttack`: an attacker model refines the injected text from what the agent did with the last one.

Source: PAIR (Chao et al. 2025, "Jailbreaking black box large language models in twenty queries"), adapted to
indirect injection: the target is the whole defended agent, the judge is the injection task's own check, and
independent streams of refinements follow one another until one succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsys.attacks.search import Attempt, AttemptPosition, SearchTask, SearchTarget
from agentsys.attacks.search_options import SearchOptions, check_count
from agentsys.attacks.searched import AttackerSearch


class PairAttack(AttackerSearch):
    """Streams of refinements of a start text, which is tried first.

    Args:
        streams: Number of independent starts.
        depth: Attempts per stream; `streams` x `depth`, and the start text's, is the budget.
        name: The attack's name.
        options: Any of `SearchOptions`, by name.

    Raises:
        ConfigError: If an option is out of range or the artefact cannot be read.
    """

    def __init__(self, streams: int = 3, depth: int = 5, *, name: str = "pair", **options: Any) -> None:
        super().__init__(name, SearchOptions(**options))
        self.streams = check_count("attack.streams", streams)
        self.depth = check_count("attack.depth", depth)
        self.budget = 1 + self.streams * self.depth

    def search(self, quest: SearchTask, target: SearchTarget) -> Sequence[Attempt]:
        """Stream after stream, until an attempt succeeds or the budget is spent."""
        made = [self.try_start_text(quest, target)]
        if self.ends_search(made[0]):
            return made
        for stream in range(1, self.streams + 1):
            path: list[Attempt] = []
            for depth in range(1, self.depth + 1):
                place = AttemptPosition(stream, depth, path[-1].number if path else None)
                path.append(target.attempt(place, self.make_proposer(quest, place, path, start=made[0])))
                made.append(path[-1])
                if made[-1].success:
                    return made
        return made
