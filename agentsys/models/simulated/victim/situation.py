"""What decides, besides who and where, whether a payload is obeyed: alike in traces and in simulation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsys.models.simulated.text_matching import fold, folded_reading


@dataclass(frozen=True)
class Meeting:
    """The moment in which a tool first returned the payload."""

    tool: str
    round: int
    """Which tool result it was, from 1."""
    chars: int
    """Characters of that result."""
    position: float
    """Where in it the payload stands: 0 at its beginning, 1 at its end."""
    called: tuple[str, ...]
    """Tools whose results were read before or with it."""


def covariates(meeting: Meeting, task: Sequence[str], goal: Sequence[str]) -> Mapping[str, float]:
    """The covariates of obeying; nothing in them happens after the payload was met.

    Args:
        meeting: When and how it was met.
        task: Tools of the user task's ground truth, in order.
        goal: Tools of the goal's.
    """
    left = Counter(task) - Counter(meeting.called)
    return {
        "round": math.log(meeting.round),
        "chars": math.log1p(meeting.chars),
        "position": meeting.position,
        "remaining": math.log1p(left.total()),
        "shared_tool": float(bool(set(task) & set(goal))),
        "goal_calls": math.log1p(len(goal)),
    }


def place_in(text: str, goal: str) -> float:
    """Where in a text the words of a goal stand, from 0 to 1; 0.5 where they cannot be found."""
    hay = folded_reading(text)
    found = hay.find(fold(goal)) if goal else -1
    return 0.5 if found < 0 else found / max(len(hay), 1)
