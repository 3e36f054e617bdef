"""`AheadLimit`: bounds the queries of searches that are made ahead of their turn, some of them for nothing."""

from __future__ import annotations

import threading
from typing import Protocol

MOST_THROWN_AWAY = 0.15
"""Expected share of queries made ahead of their turn for nothing, above which none is made ahead."""


class CountedAttempt(Protocol):
    """An attempt of a search."""

    queries: int
    """Runs of the agent that were begun."""


class AheadLimit:
    """Counts a run's queries, and bounds those that are expected to be made for nothing. Thread-safe."""

    def __init__(self) -> None:
        self.counted = 0
        """Queries of attempts that their search came to."""
        self._attempts = self._successes = 0
        self._dropped: list[CountedAttempt] = []
        self._ahead: dict[CountedAttempt, float] = {}
        """Attempt made ahead of its turn -> its queries that are expected to be made for nothing."""
        self._lock = threading.RLock()

    @property
    def thrown_away(self) -> int:
        """Queries of attempts that no search came to."""
        return sum(trial.queries for trial in self._dropped)

    @property
    def summary(self) -> str:
        """One line on the queries that were thrown away; `""` if there are none."""
        if not self.thrown_away:
            return ""
        queries = self.thrown_away + self.counted
        return (
            f"Made ahead and thrown away: {self.thrown_away:,} of {queries:,} queries of searches"
            f" ({self.thrown_away / queries:.1%}). They were paid for, and stand in the ledger and in no record."
        )

    def admit(self, trial: CountedAttempt, distance: int, queries: int) -> bool:
        """Return True if an attempt may be made `distance` attempts before its turn."""
        with self._lock:
            # Laplace's rule, as if one attempt in four had succeeded before the first.
            chance = (self._successes + 1) / (self._attempts + 4)
            risk = queries * (1 - (1 - chance) ** distance)
            expected = self.thrown_away + sum(self._ahead.values()) + risk
            if expected > MOST_THROWN_AWAY * (self.counted + expected):
                return False
            self._ahead[trial] = risk
            return True

    def count(self, trial: CountedAttempt, *, success: bool) -> None:
        """Count an attempt that its search came to."""
        with self._lock:
            self._ahead.pop(trial, None)
            self.counted += trial.queries
            self._attempts += 1
            self._successes += success

    def drop(self, trial: CountedAttempt) -> None:
        """Count an attempt that its search did not come to."""
        with self._lock:
            self._ahead.pop(trial, None)
            self._dropped.append(trial)
