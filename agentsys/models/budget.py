"""Budgets: how much a run and a case may spend, and the wrapper that books every request and keeps to it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from agentsys.ledger import Entry, Ledger
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, Usage
from agentsys.models.errors import ModelError
from agentsys.models.trace import current_tracer


class Budget(BaseModel):
    """What may be spent; None: as much as it takes. No part of any case's identity."""

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


@dataclass
class Meter:
    """What a run has spent so far. Used from many threads."""

    budget: Budget = field(default_factory=Budget)
    usd: float = 0.0
    tokens: int = 0
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
    """Where a run's requests are booked."""

    meter: Meter
    ledger: Ledger | None = None


class Booked:
    """A model whose every request is booked where the current case says, before anyone judges its answer.

    Stands next to the provider, below cache and retries: what they hide was sent and paid for all the same.

    Args:
        model: The model to ask.
        sent: Whether its requests go anywhere (a scripted model's do not): then they are in the ledger.
    """

    def __init__(self, model: ChatModel, *, sent: bool = True) -> None:
        self.model = model
        self._sent = sent

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model once.

        Raises:
            ModelError: As the wrapped model does.
            RunBudgetReached: If the run may spend no more; then nothing was sent.
        """
        books = current_tracer().books
        if books is not None and not books.meter.has_room():
            raise RunBudgetReached(books.meter.reached)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            self._book(books, request, error.usage, error.cost_usd, error.kind.value)
            raise
        except Exception as error:
            # A bug in an adapter: something may have been sent, and nobody knows what it came to.
            self._book(books, request, Usage(), None, type(error).__name__)
            raise
        self._book(books, request, reply.usage, reply.cost_usd, None)
        return reply

    def _book(
        self,
        books: Books | None,
        request: ChatRequest,
        usage: Usage,
        cost_usd: float | None,
        error: str | None,
    ) -> None:
        if books is None:
            return
        books.meter.add(usage, cost_usd)
        if books.ledger is not None and self._sent:
            counts = usage.prompt, usage.completion, usage.cached, usage.reasoning
            case = current_tracer().case
            books.ledger.add(Entry(time.time(), case, self.name, request.role, *counts, cost_usd, error))
