"""`Archive`: the best attempt of every kind of text, and what to try next. Plain functions of the attempts.

MAP-Elites (Mouret and Clune 2015) as The Attacker Moves Second uses it: cells instead of one best text, so
that a search does not end in variations of its first find.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

from agentsys.attacks.evolve.strategies import START_STRATEGY, STRATEGIES, ObfuscationLevel, detect_level
from agentsys.attacks.search import Attempt

CELL_KINDS = ("strategy", "length")
_BUCKETS, _SHORT, _LONG = 10, 100, 2000
"""Cells by length: ten of characters, from 100 to 2000, times ten of likeness to the start text."""

ArchiveCell = tuple[str, str]
"""Strategy and level; by length: both as numbers."""


@dataclass(frozen=True)
class NextStep:
    """What an attacker is to write."""

    parent: Attempt
    """The attempt it goes on from."""
    examples: tuple[Attempt, ...]
    """Further ones it is shown."""
    strategy: str
    level: ObfuscationLevel


@dataclass(frozen=True)
class Archive:
    """The elites of the attempts made so far."""

    goal: str
    start: str
    kind: str
    """One of `CELLS`."""
    attempts: tuple[Attempt, ...]

    def find_elites(self) -> dict[ArchiveCell, Attempt]:
        """Cell -> its best attempt: the highest score, then the fewest characters, then the lowest number."""
        best: dict[ArchiveCell, Attempt] = {}
        for attempt in self._tried_attempts():
            cell = self.find_cell(attempt)
            if cell not in best or _rank_key(attempt) < _rank_key(best[cell]):
                best[cell] = attempt
        return best

    def find_cell(self, attempt: Attempt) -> ArchiveCell:
        """The kind of text that an attempt was."""
        text = get_written_text(attempt)
        if self.kind == "strategy":
            return get_strategy(attempt), detect_level(text, self.goal).value
        length = (len(text) - _SHORT) * _BUCKETS // (_LONG - _SHORT)
        alike = int(SequenceMatcher(None, self.start, text, autojunk=False).ratio() * _BUCKETS)
        return str(min(max(length, 0), _BUCKETS - 1)), str(min(alike, _BUCKETS - 1))

    def draw_next_step(self, draw: random.Random, *, best: float, examples: int) -> NextStep:
        """Draw a parent, examples, and the kind of text that is wanted.

        Args:
            draw: The source of chance; the same one draws the same.
            best: Probability that the parent comes from the better half of the cells.
            examples: Number of further elites to show.

        Raises:
            IndexError: If nothing has been tried.
        """
        ranked = sorted(self.find_elites().values(), key=_rank_key)
        half = ranked[: (len(ranked) + 1) // 2]
        parent = draw.choice(half if draw.random() < best else ranked)
        others = [one for one in ranked if one is not parent]
        shown = draw.sample(others, min(examples, len(others)))
        return NextStep(parent, tuple(shown), self._draw_strategy(draw), draw.choice(list(ObfuscationLevel)))

    def _draw_strategy(self, draw: random.Random) -> str:
        """One of the strategies that were tried least."""
        tried = Counter(get_strategy(attempt) for attempt in self._tried_attempts())
        least = min(tried[strategy] for strategy in STRATEGIES)
        return draw.choice([strategy for strategy in STRATEGIES if tried[strategy] == least])

    def _tried_attempts(self) -> Iterable[Attempt]:
        return (attempt for attempt in self.attempts if attempt.proposal.refused is None)


def get_strategy(attempt: Attempt) -> str:
    """The strategy that the attacker declared; without one that is known, the one it was asked for."""
    declared = attempt.proposal.strategy
    if declared in STRATEGIES:
        return declared
    # Streams are numbered as strategies are; 0 is the start text's.
    names, stream = list(STRATEGIES), attempt.place.stream
    return names[stream - 1] if 1 <= stream <= len(names) else START_STRATEGY


def get_stream(strategy: str) -> int:
    """The number of a strategy, from 1."""
    return list(STRATEGIES).index(strategy) + 1


def get_written_text(attempt: Attempt) -> str:
    """The candidate as its attacker wrote it, no escapes added."""
    return attempt.proposal.proposed or attempt.proposal.text


def _rank_key(attempt: Attempt) -> tuple[int, int, int]:
    """Smaller is better."""
    return -attempt.judgement.score, len(get_written_text(attempt)), attempt.number
