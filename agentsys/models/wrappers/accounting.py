"""Models that keep accounts: `MeteredModel` of requests sent, `RecordingModel` of what a case asked."""

from __future__ import annotations

import json
import time

from agentsys.base.ledger import LedgerEntry
from agentsys.models.budget import Amount, UsageLog
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ErrorKind, ModelError, ModelWrapper, Usage
from agentsys.models.pricing import Price
from agentsys.models.reply_checks import count_oddities
from agentsys.models.trace import Tracer, current_tracer
from agentsys.models.wrappers.rate_limit import guess_prompt_tokens

_UNBOUNDED_REPLY = 8192
"""Output tokens that are assumed of a reply without a count where no bound was asked for."""


class MeteredModel(ModelWrapper):
    """A model whose every request is booked where the current case says, before anyone judges its answer.

    Stands next to the provider, below cache and retries: what they hide was sent and paid for all the same.

    Args:
        model: The model to ask.
        price: What it costs, as far as that is known.
        sent: Whether its requests go anywhere (a scripted model's do not): then they are in the ledger.
        max_tokens: Most output tokens of a request that does not say it; None: nobody bounds them.
    """

    def __init__(
        self,
        model: ChatModel,
        price: Price | None = None,
        *,
        sent: bool = True,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(model)
        self._price, self._sent, self._max_tokens = price, sent, max_tokens

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model once.

        Raises:
            ModelError: If the wrapped model raises it.
            RunBudgetReached: If the run may spend no more; then nothing was sent.
        """
        books = current_tracer().usage_log
        if books is None:
            return self.model.complete(request)
        limited = books.meter.is_limited
        aside = books.meter.reserve_amount(self._max_amount(books, request)) if limited else Amount()
        usage, cost_usd, failure, uncounted, written = Usage(), None, None, False, ""
        try:
            reply = self.model.complete(request)
            usage, cost_usd, uncounted = reply.usage, reply.cost_usd, bool(reply.usage.uncounted)
            written = str(reply.message)
            return reply
        except ModelError as error:
            usage, cost_usd, failure = error.usage, error.cost_usd, error.kind.value
            uncounted = error.answered_uncounted or bool(usage.uncounted)
            raise
        except BaseException as error:
            # A bug in an adapter: something may have been sent, and nobody knows what it came to.
            failure = type(error).__name__
            raise
        finally:
            if limited and uncounted:
                books.meter.assume_usage(self._worst_amount(books, request, written), aside)
            else:
                books.meter.add_usage(usage, cost_usd, aside)
            self._log_request(books, request, usage, cost_usd, failure)

    def _max_amount(self, books: UsageLog, request: ChatRequest) -> Amount:
        """The most that a request is likely to cost: twice what such prompts usually do, and a long reply."""
        prompt = 2 * guess_prompt_tokens(request)
        reply = request.max_tokens or books.meter.longest_reply
        usd = 0.0 if self._price is None else self._price.max_usd(prompt, reply)
        return Amount(usd, prompt + reply, requests=1)

    def _worst_amount(self, books: UsageLog, request: ChatRequest, written: str) -> Amount:
        """The most that a request can have cost: a token for each byte sent, and the longest reply allowed."""
        sent = [list(request.messages), [tool.json_object for tool in request.tools], request.reply_schema]
        prompt = len(json.dumps(sent, default=str).encode())
        bound = request.max_tokens or self._max_tokens or _UNBOUNDED_REPLY
        reply = max(bound, books.meter.longest_reply, len(written.encode("utf-8", "replace")))
        usd = 0.0 if self._price is None else self._price.max_usd(prompt, reply)
        return Amount(usd, prompt + reply, requests=1)

    def _log_request(
        self, books: UsageLog, request: ChatRequest, usage: Usage, cost_usd: float | None, error: str | None
    ) -> None:
        if books.ledger is None or not self._sent:
            return
        counts = usage.prompt, usage.completion, usage.cached, usage.reasoning
        case = current_tracer().case
        entry = LedgerEntry(
            time.time(), case, self.name, request.role, *counts, cost_usd, error, usage.uncounted
        )
        books.ledger.add(entry)


class RecordingModel(ModelWrapper):
    """A model whose calls are booked under the current span of the current case."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model and book usage, cost and role, of an error too.

        Raises:
            ModelError: As the wrapped model does; `case_budget` if the case may ask no more.
        """
        tracer = current_tracer()
        _check_case_budget(tracer)
        tracer.model_asked(request)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            tracer.model_failed(request.role, error)
            raise
        tracer.model_answered(request.role, reply, count_oddities(request, reply))
        return reply


def _check_case_budget(tracer: Tracer) -> None:
    if tracer.usage_log is None:
        return
    budget = tracer.usage_log.meter.budget
    if budget.case_tokens is not None and tracer.tokens >= budget.case_tokens:
        text = f"budget.case_tokens={budget.case_tokens} is used up ({tracer.tokens:,} tokens)"
        raise ModelError(ErrorKind.CASE_BUDGET, text)
    if budget.case_seconds is not None and tracer.seconds >= budget.case_seconds:
        text = f"budget.case_seconds={budget.case_seconds:g} is used up ({tracer.seconds:.1f} s)"
        raise ModelError(ErrorKind.CASE_BUDGET, text)
