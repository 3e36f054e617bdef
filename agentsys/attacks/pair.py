"""`PairAttack`: an attacker model refines the injected text from what the agent did with the last one.

Source: PAIR (Chao et al. 2025, "Jailbreaking black box large language models in twenty queries"), adapted to
indirect injection: the target is the whole defended agent on one case, the judge is the injection task's own
check, and independent streams of refinements follow one another until one succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsys.attacks.search import Attempt, Place, Quest, Target
from agentsys.attacks.searched import Searched, count, proposing


class PairAttack(Searched):
    """Streams of refinements.

    Args:
        streams: Independent starts.
        depth: Attempts per stream; `streams` x `depth` is the budget. A refused candidate costs one.
        name: See `Searched`, as are the options that follow.
        mode: As there.
        feedback: As there.
        attacker: As there.
        temperature: As there.
        seed: As there.
        artefact: As there.

    Raises:
        ConfigError: If an option is out of range or the artefact cannot be read.
    """

    def __init__(
        self,
        streams: int = 3,
        depth: int = 5,
        *,
        name: str = "pair",
        mode: str = "transfer",
        feedback: str = "blackbox",
        attacker: str | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        artefact: str | None = None,
    ) -> None:
        super().__init__(
            name,
            mode=mode,
            feedback=feedback,
            attacker=attacker,
            temperature=temperature,
            seed=seed,
            artefact=artefact,
        )
        self.streams = count("attack.streams", streams)
        self.depth = count("attack.depth", depth)
        self.budget = self.streams * self.depth

    def search(self, quest: Quest, target: Target) -> Sequence[Attempt]:
        """Stream after stream, until an attempt succeeds or the budget is spent."""
        attacker = self.attacker_of(quest)
        made: list[Attempt] = []
        for stream in range(1, self.streams + 1):
            path: list[Attempt] = []
            for depth in range(1, self.depth + 1):
                place = Place(stream, depth, path[-1].number if path else None)
                path.append(target.attempt(place, proposing(attacker, place, tuple(path))))
                made.append(path[-1])
                if made[-1].success:
                    return made
        return made
