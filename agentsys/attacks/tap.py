"""`TapAttack`: PAIR's refinements as a tree, with pruning.

Source: TAP (Mehrotra et al. 2024, "Tree of attacks: jailbreaking black-box LLMs automatically"): every leaf
is refined in several ways, off-topic candidates are pruned before they are tried, and the best ones by score
are the next leaves. The on-topic filter is deterministic here (agentsys.attacks.goal_data.off_topic).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentsys.attacks.goal_data import off_topic
from agentsys.attacks.search import Attempt, Place, Quest, Target
from agentsys.attacks.searched import Searched, count, proposing

_Path = tuple[Attempt, ...]
"""The attempts from a child of the root to a leaf."""


class TapAttack(Searched):
    """A tree of refinements.

    Args:
        branching: Candidates per leaf.
        width: Leaves kept after each level, the best by score.
        depth: Levels. A pruned candidate costs an attempt, as PAIR's refused ones do.
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
        branching: int = 2,
        width: int = 3,
        depth: int = 4,
        *,
        name: str = "tap",
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
        self.branching = count("attack.branching", branching)
        self.width = count("attack.width", width)
        self.depth = count("attack.depth", depth)
        self.budget = sum(self.branching * leaves for leaves in self._leaves())

    def search(self, quest: Quest, target: Target) -> Sequence[Attempt]:
        """Level after level, until an attempt succeeds, the last level is done or every leaf is pruned."""
        attacker = self.attacker_of(quest)
        made: list[Attempt] = []
        leaves: list[_Path] = [()]
        for depth in range(1, self.depth + 1):
            grown: list[_Path] = []
            for path in leaves:
                for variation in range(1, self.branching + 1):
                    # A stream is what grew from one child of the root.
                    stream = path[0].place.stream if path else variation
                    place = Place(stream, depth, path[-1].number if path else None)
                    ask = proposing(attacker, place, path, variation=variation, refuses=off_topic)
                    made.append(target.attempt(place, ask))
                    grown.append((*path, made[-1]))
                    if made[-1].success:
                        return made
            leaves = self._best(grown)
        return made

    def _best(self, grown: Sequence[_Path]) -> list[_Path]:
        """The leaves to go on with: not pruned, the best scores first, earlier ones before later ones."""
        tried = [path for path in grown if path[-1].proposal.refused is None]
        ranked = sorted(tried, key=lambda path: (-path[-1].judgement.score, path[-1].number))
        return ranked[: self.width]

    def _leaves(self) -> Iterator[int]:
        """Leaves at the beginning of each level, at most."""
        leaves = 1
        for _ in range(self.depth):
            yield leaves
            leaves = min(self.width, leaves * self.branching)
