"""`PairAttack`, `TapAttack`, `SamplerAttack`: three orders of trying an attacker's candidates.

Sources: PAIR (Chao et al. 2025, "Jailbreaking black box large language models in twenty queries") and TAP
(Mehrotra et al. 2024, "Tree of attacks: jailbreaking black-box LLMs automatically"), adapted to indirect
injection: the target is the whole defended agent, the judge is the injection task's own check.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from agentsys.attacks.attack_search import Attempt, AttemptPosition, Propose, SearchTarget, SearchTask
from agentsys.attacks.attacker_search import AttackerSearch
from agentsys.attacks.search_options import check_count


class PairAttack(AttackerSearch):
    """PAIR: streams of refinements of a start text, which is tried first.

    Args:
        streams: Number of independent starts.
        depth: Attempts per stream; the budget is `streams` x `depth` and the start text.
        options: Any of `SearchOptions`, by name.
    """

    def __init__(self, streams: int = 3, depth: int = 5, *, name: str = "pair", **options: Any) -> None:
        super().__init__(name, options)
        self.streams = check_count("attack.streams", streams)
        self.depth = check_count("attack.depth", depth)
        self.budget = 1 + self.streams * self.depth

    def plan_attempt(
        self, quest: SearchTask, number: int, made: Mapping[int, Attempt]
    ) -> tuple[AttemptPosition, Propose] | None:
        """Plan stream after stream; an attempt depends on the earlier ones of its stream."""
        stream, earlier = divmod(number - 2, self.depth)
        path = [made[n] for n in range(number - earlier, number) if n in made]
        if stream >= self.streams or len(path) < earlier:
            return None
        position = AttemptPosition(stream + 1, earlier + 1, path[-1].number if path else None)
        return position, self.make_proposer(quest, position, path, start=made[1])


_AttemptPath = tuple[Attempt, ...]
"""The attempts from a child of the root to a leaf."""


class TapAttack(AttackerSearch):
    """TAP: a tree of refinements of a start text, which is tried first; a model prunes off-topic candidates.

    Args:
        branching: Number of candidates per leaf.
        width: Number of leaves kept after each level, the best by score.
        depth: Number of levels. A pruned candidate costs an attempt and no query.
        on_topic: Pruning of candidates, see `SearchOptions`; by default TAP prunes.
        options: Any other of `SearchOptions`, by name.
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
        super().__init__(name, {"on_topic": on_topic, **options})
        self.branching = check_count("attack.branching", branching)
        self.width = check_count("attack.width", width)
        self.depth = check_count("attack.depth", depth)
        leaves, self.budget = 1, 1
        for _ in range(self.depth):
            self.budget += self.branching * leaves
            leaves = min(self.width, leaves * self.branching)

    def plan_attempt(
        self, quest: SearchTask, number: int, made: Mapping[int, Attempt]
    ) -> tuple[AttemptPosition, Propose] | None:
        """Plan level after level; an attempt depends on all of the levels before."""
        leaves, first = [_AttemptPath()], 2
        for depth in range(1, self.depth + 1):
            # The path that each attempt of this level refines.
            refined = [path for path in leaves for _ in range(self.branching)]
            if number < first + len(refined):
                path, variation = refined[number - first], 1 + (number - first) % self.branching
                # A stream is the subtree of one child of the root.
                stream = path[0].place.stream if path else variation
                position = AttemptPosition(stream, depth, path[-1].number if path else None)
                return position, self.make_proposer(quest, position, path, start=made[1], variation=variation)
            if any(first + index not in made for index in range(len(refined))):
                return None
            grown = [(*path, made[first + index]) for index, path in enumerate(refined)]
            leaves = self._select_leaves(grown, random.Random(f"{self.seed}\n{quest.id}\n{depth}"))
            first += len(refined)
        return None

    def _select_leaves(self, grown: Sequence[_AttemptPath], draw: random.Random) -> list[_AttemptPath]:
        """Select the unpruned leaves with the best scores.

        Most scores are equal. Among equals every stream gets one leaf before any gets a second, in an order drawn
        anew on each level: in order of number, one stream would soon be the only one left.
        """
        tried = [path for path in grown if path[-1].proposal.refused is None]
        turns: defaultdict[tuple[int, int], Iterator[int]] = defaultdict(count)

        def rank(path: _AttemptPath) -> tuple[int, int]:
            score = path[-1].judgement.score
            return -score, next(turns[score, path[0].place.stream])

        return sorted(draw.sample(tried, len(tried)), key=rank)[: self.width]


class SamplerAttack(AttackerSearch):
    """Independent samples, up to the first that succeeds. The start text is shown and not tried.

    For attackers that were trained to write injections (RL-Hammer, PISmith, ...) and for success at n tries.

    Args:
        samples: Number of texts at most.
        options: Any of `SearchOptions`, by name.
    """

    literal = True

    def __init__(self, samples: int = 10, *, name: str = "sampler", **options: Any) -> None:
        super().__init__(name, options)
        self.samples = self.budget = check_count("attack.samples", samples)

    def search(self, quest: SearchTask, target: SearchTarget) -> Sequence[Attempt]:
        """Try one sample after the other; none if the attacker's first conversations give no text."""
        attacker = self.build_attacker(quest)
        return self.try_samples(
            quest, target, lambda n: attacker.build_candidate_request(AttemptPosition(n, 1, None), ())
        )
