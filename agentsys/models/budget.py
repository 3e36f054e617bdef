"""Budgets: how much a run and a case may spend, and the books that say what was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from agentsys.ledger import Ledger
from agentsys.models.chat import Usage


class Budget(BaseModel):
    """A limit on what may be spent; None: as much as it takes. No part of any case's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    usd: float | None = Field(default=None, gt=0)
    """US dollars of one run."""
    tokens: int | None = Field(default=None, gt=0)
    """Prompt and completion tokens of one run, as far as requests were sent for them."""
    case_tokens: int | None = Field(default=None, gt=0)
    """Tokens of one case, replies from the cache included."""
    case_seconds: float | None = Field(default=None, gt=0)
    """Seconds of one case, from its first question to a model."""
    ask_above_usd: float = Field(default=25.0, ge=0)
    """A plan estimated above this does not start without `usd` or `--yes`."""


class RunBudgetReached(BaseException):
    """The run may spend no more. A BaseException: no defense may take it for a failure of the model."""


@dataclass(frozen=True)
class MeterReading:
    """What some part of a run has spent, and how it waits."""

    usd: float = 0.0
    tokens: int = 0
    retries: int = 0
    waiting: int = 0

    def __add__(self, other: MeterReading) -> MeterReading:
        return MeterReading(
            self.usd + other.usd,
            self.tokens + other.tokens,
            self.retries + other.retries,
            self.waiting + other.waiting,
        )

    def __sub__(self, other: MeterReading) -> MeterReading:
        return self + MeterReading(-other.usd, -other.tokens, -other.retries, -other.waiting)


NOTHING_SPENT = MeterReading()


@dataclass
class Meter:
    """Counts what a run has spent so far. Used from many threads."""

    budget: Budget = field(default_factory=Budget)
    usd: float = 0.0
    tokens: int = 0
    retries: int = 0
    """Requests that were sent once more, after an error that passes or an empty answer."""
    waiting: int = 0
    """Threads that wait at this moment before they ask again."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def limited(self) -> bool:
        """Whether the run has a budget at all."""
        return self.budget.usd is not None or self.budget.tokens is not None

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        """Count one request."""
        with self._lock:
            self.usd += cost_usd or 0.0
            self.tokens += usage.prompt + usage.completion

    @property
    def reading(self) -> MeterReading:
        """All of it at this moment."""
        with self._lock:
            return MeterReading(self.usd, self.tokens, self.retries, self.waiting)

    def add_elsewhere(self, more: MeterReading) -> None:
        """Count what other processes of the same run have spent."""
        with self._lock:
            self.usd += more.usd
            self.tokens += more.tokens
            self.retries += more.retries
            self.waiting += more.waiting

    @contextmanager
    def wait(self, *, retry: bool) -> Iterator[None]:
        """Count a wait while it lasts.

        Args:
            retry: Whether a request of its own is sent again behind it; else it waits for somebody else's.
        """
        with self._lock:
            self.waiting += 1
            self.retries += retry
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1

    def has_room(self, usd: float = 0.0, tokens: float = 0) -> bool:
        """Whether so much more may be spent; with no arguments, whether anything may."""
        limits = ((self.budget.usd, self.usd, usd), (self.budget.tokens, self.tokens, tokens))
        return all(
            limit is None or (spent < limit and spent + more <= limit) for limit, spent, more in limits
        )

    @property
    def reached(self) -> str:
        """One sentence: the budget, and what was spent."""
        told = [] if self.budget.usd is None else [f"budget.usd={self.budget.usd:g} (${self.usd:.2f} spent)"]
        if self.budget.tokens is not None:
            told.append(f"budget.tokens={self.budget.tokens} ({self.tokens:,} used)")
        return f"{' and '.join(told)}: no further case fits."


@dataclass(frozen=True)
class Books:
    """The books in which a run's requests are entered."""

    meter: Meter
    ledger: Ledger | None = None
