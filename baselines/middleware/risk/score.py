"""From findings to a score in [0, 10], and from the score to what is done."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

CombineRule = Literal["accumulate", "maximum"]
"""`accumulate`: 10 x (1 - product of 1 - weight): every finding adds. `maximum`: 10 x the largest weight."""


class Handling(StrEnum):
    """What is done with a text or a call, from the mildest to the strictest."""

    ALLOW = "allow"
    """It passes as it is."""
    REWRITE = "rewrite"
    """What was found is taken out, the rest passes."""
    QUARANTINE = "quarantine"
    """All of it is held back for a person to look at; the record keeps it."""
    BLOCK = "block"
    """No model sees it, no tool runs it."""


HANDLING_ORDER = tuple(Handling)


@dataclass(frozen=True)
class Thresholds:
    """Lowest score of each action. A score on the edge takes the stricter side."""

    rewrite: float = 3.0
    quarantine: float = 5.0
    block: float = 6.6

    def handling(self, score: float) -> Handling:
        """What is done at this score."""
        if score >= self.block:
            return Handling.BLOCK
        if score >= self.quarantine:
            return Handling.QUARANTINE
        return Handling.REWRITE if score >= self.rewrite else Handling.ALLOW


def combine_weights(weights: Iterable[float], how: CombineRule = "accumulate") -> float:
    """The score of some findings, in [0, 10], to three decimals.

    Args:
        weights: Confidences from 0 to 1.
        how: `accumulate` spreads scores out; `maximum` is the rule whose scores cluster at a few values.
    """
    found = list(weights)
    if how == "maximum":
        return round(10 * max(found, default=0.0), 3)
    return round(10 * (1 - math.prod(1 - weight for weight in found)), 3)


def strictest_handling(actions: Iterable[Handling]) -> Handling:
    """The strictest of some actions; `ALLOW` where there is none."""
    return max(actions, key=HANDLING_ORDER.index, default=Handling.ALLOW)
