"""`Unusable`: a record that cannot be scored again, and which kind of obstacle it met."""

from __future__ import annotations

from enum import StrEnum


class RecordFault(StrEnum):
    """Why a record is left out. Each kind is counted apart; none is folded into an agreement."""

    UNREADABLE = "unreadable"
    """Not JSON, or a part of it has the wrong type."""
    UNFINISHED = "unfinished"
    """No scores, or no last assistant message."""
    HOLLOW = "hollow"
    """Scores beside an empty list of messages: nothing to execute."""
    ERROR = "error"
    """The run ended in an error; what it stored as scores was not judged."""
    NOT_HERE = "not in this version"
    """A suite, task or injection vector that the version does not have."""
    OTHER_BENCHMARK = "other benchmark"
    """Scored by something else than AgentDojo's checks."""
    CHECK_FAILED = "check failed"
    """The environment could not be loaded, or a check raised an exception."""
    REPEATED = "repeated"
    """Another file of the same case was counted already."""


class Unusable(Exception):
    """A record that is skipped.

    Args:
        obstacle: Kind of fault that was found.
        reason: The reason in one short line; it may quote names from the file.
    """

    def __init__(self, obstacle: RecordFault, reason: str) -> None:
        super().__init__(reason)
        self.obstacle = obstacle
