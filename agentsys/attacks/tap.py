"""`TapAttack`: PAIR's refinements as a tree, with pruning.

Source: TAP (Mehrotra et al. 2024, "Tree of attacks: jailbreaking black-box LLMs automatically"): every leaf
is refined in several ways, a model prunes off-topic candidates before they are tried, and the best ones by
score are the next leaves.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from agentsys.attacks.search import Attempt, AttemptPosition, SearchTask, SearchTarget
from agentsys.attacks.search_options import SearchOptions, check_count
from agentsys.attacks.searched import AttackerSearch

_AttemptPath = tuple[Attempt, ...]
"""The attempts from a child of the root to a leaf."""


class TapAttack(AttackerSearch):
    """A tree of refinements of a start text, which is tried first.

    Args:
        branching: Number of candidates per leaf.
        width: Number of leaves kept after each level, the best by score.
        depth: Number of levels. A pruned candidate costs an attempt and no query.
        name: The attack's name.
        on_topic: The pruning of candidates, see `SearchOptions`; by default TAP prunes.
        options: Any other of `SearchOptions`, by name.

    Raises:
        ConfigError: If an option is out of range or the artefact cannot be read.
    """

    def __init__(
        self,
        branching: int = 3,
        width: int = 3,
        depth: int = 3,
        *,
        name: str = "tap",
        on_topic: str = "model",
        **options: Any,
    ) -> None:
        super().__init__(name, SearchOptions(on_topic=on_topic, **options))
        self.branching = check_count("attack.branching", branching)
        self.width = check_count("attack.width", width)
        self.depth = check_count("attack.depth", depth)
        self.budget = 1 + sum(self.branching * leaves for leaves in self._count_leaves())

    def search(self, quest: SearchTask, target: SearchTarget) -> Sequence[Attempt]:
        """Level after level, until an attempt succeeds, the last level is done or every leaf is pruned."""
        made = [self.try_start_text(quest, target)]
        leaves: list[_AttemptPath] = [] if self.ends_search(made[0]) else [()]
        for depth in range(1, self.depth + 1):
            grown: list[_AttemptPath] = []
            for path in leaves:
                for variation in range(1, self.branching + 1):
                    # A stream is what grew from one child of the root.
                    stream = path[0].place.stream if path else variation
                    place = AttemptPosition(stream, depth, path[-1].number if path else None)
                    ask = self.make_proposer(quest, place, path, start=made[0], variation=variation)
                    made.append(target.attempt(place, ask))
                    grown.append((*path, made[-1]))
                    if made[-1].success:
                        return made
            leaves = self._select_leaves(grown, random.Random(f"{self.seed}\n{quest.id}\n{depth}"))
        return made

    def _select_leaves(self, grown: Sequence[_AttemptPath], draw: random.Random) -> list[_AttemptPath]:
        """The leaves to go on with: not pruned, the best scores first.

        Most scores are equal. Among equals every lineage has its turn before one has a second, in an order
        drawn afresh on each level: taken by number, one lineage would soon be all that is left.
        """
        tried = [path for path in grown if path[-1].proposal.refused is None]
        turns: defaultdict[tuple[int, int], Iterator[int]] = defaultdict(count)

        def rank(path: _AttemptPath) -> tuple[int, int]:
            score = path[-1].judgement.score
            return -score, next(turns[score, path[0].place.stream])

        return sorted(draw.sample(tried, len(tried)), key=rank)[: self.width]

    def _count_leaves(self) -> Iterator[int]:
        """Leaves at the beginning of each level, at most."""
        leaves = 1
        for _ in range(self.depth):
            yield leaves
            leaves = min(self.width, leaves * self.branching)
