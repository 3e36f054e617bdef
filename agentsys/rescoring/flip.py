"""`Flip`: a score that came out otherwise, and by what evidence one can say why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from agentsys.rescoring.trajectories.trajectory import Trajectory

Score = Literal["utility", "security"]


class Reason(StrEnum):
    """Why a score flipped."""

    CHECKER = "checker changed"
    """The same calls score as recorded under the version they were run with (or under another one, where
    the file names none)."""
    CLOCK = "clock"
    """They score as recorded once the stamps of today are replaced by the record's."""
    DATA = "data changed"
    """The suite's data has another hash than the record's; or, where no hash is recorded, a tool returns
    another text today. That is a difference found, not a cause proven."""
    NOT_EXPLAINED = "not explained"
    """Nothing of these was found."""


@dataclass(frozen=True)
class Flip:
    """One score of one record."""

    trajectory: Trajectory
    version: str
    """The version it was scored with now."""
    score: Score
    recorded: bool
    rescored: bool
    reason: Reason
    detail: str
    """The evidence in a few words; empty where there is none."""
