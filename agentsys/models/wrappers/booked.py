"""`Booked`: books every request to a model, and sends none that a run's budget has no room for."""

from __future__ import annotations

import time

from agentsys.ledger import Entry
from agentsys.models.budget import Books, RunBudgetReached
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, Usage
from agentsys.models.errors import ModelError
from agentsys.models.trace import current_tracer


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
            ModelError: If the wrapped model raises it.
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
            told = Entry(
                time.time(), case, self.name, request.role, *counts, cost_usd, error, usage.uncounted
            )
            books.ledger.add(told)
