"""Models that keep accounts: `MeteredModel` of requests sent, `RecordingModel` of what a case asked.

`RetryingModel` asks again after errors that pass, with exponential backoff and full jitter. It alone does: the
SDKs' own retries are switched off, so that every request is counted. What a refusal means for others who ask the
same model is `RateLimitedModel`'s business. Which errors pass is in `agentsys.models.chat` and docs/errors.md.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace

from agentdojo.types import ChatMessage
from pydantic import BaseModel, ConfigDict, Field

from agentsys.base.ledger import LedgerEntry
from agentsys.models.budget import Amount, UsageLog
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Consequence,
    ErrorKind,
    ModelError,
    ModelWrapper,
    Usage,
)
from agentsys.models.early_questions import answer_in_turn
from agentsys.models.endings import Ending
from agentsys.models.pricing import Price
from agentsys.models.reply_checks import count_oddities, lacks_answer
from agentsys.models.text_tools import MALFORMED_CALL
from agentsys.models.trace import Tracer, get_current_tracer
from agentsys.models.wrappers.rate_limit import NoTurn, Patience, guess_prompt_tokens, use_patience

_UNBOUNDED_REPLY = 8192
"""Output tokens that are assumed of a reply without a count where no bound was asked for."""


@dataclass
class MeteredModel(ModelWrapper):
    """A model whose every request is booked where the current case says, before anyone judges its answer.

    Stands next to the provider, below cache and retries: what they hide was sent and paid for all the same.
    """

    price: Price | None = None
    """What it costs, as far as that is known."""
    _: KW_ONLY
    sent: bool = True
    """Whether its requests go anywhere (a scripted model's do not): then they are in the ledger."""
    max_tokens: int | None = None
    """Most output tokens of a request that does not say it; None: nobody bounds them."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model once.

        Raises:
            ModelError: If the wrapped model raises it.
            RunBudgetReached: If the run may spend no more; then nothing was sent.
        """
        books = get_current_tracer().usage_log
        if books is None:
            return self.model.complete(request)
        limited = books.meter.is_limited
        aside = books.meter.reserve_amount(self._estimate_max_amount(books, request)) if limited else Amount()
        usage, cost_usd, failure, uncounted, written = Usage(), None, None, False, ""
        sent = self.sent
        try:
            reply = self.model.complete(request)
            usage, cost_usd, uncounted = reply.usage, reply.cost_usd, bool(reply.usage.uncounted)
            written = str(reply.message)
            return reply
        except ModelError as error:
            usage, cost_usd, failure = error.usage, error.cost_usd, error.kind.value
            uncounted = error.answered_uncounted or bool(usage.uncounted)
            books.meter.last_error, sent = str(error), sent and not isinstance(error, NoTurn)
            raise
        except BaseException as error:
            # A bug in an adapter: something may have been sent, and nobody knows what it came to.
            failure = type(error).__name__
            raise
        finally:
            if limited and uncounted:
                books.meter.assume_usage(self._compute_worst_amount(books, request, written), aside)
            else:
                books.meter.add_usage(usage, cost_usd, aside)
            if books.ledger is not None and sent:
                counts = usage.prompt, usage.completion, usage.cached, usage.reasoning
                asked = get_current_tracer().case, self.name, request.role
                books.ledger.add(
                    LedgerEntry(time.time(), *asked, *counts, cost_usd, failure, usage.uncounted)
                )

    def _estimate_max_amount(self, books: UsageLog, request: ChatRequest) -> Amount:
        """The most that a request is likely to cost: twice what such prompts usually do, and a long reply."""
        prompt = 2 * guess_prompt_tokens(request)
        reply = request.max_tokens or books.meter.longest_reply
        usd = 0.0 if self.price is None else self.price.max_usd(prompt, reply)
        return Amount(usd, prompt + reply, requests=1)

    def _compute_worst_amount(self, books: UsageLog, request: ChatRequest, written: str) -> Amount:
        """The most that a request can have cost: a token for each byte sent, and the longest reply allowed."""
        sent = [list(request.messages), [tool.json_object for tool in request.tools], request.reply_schema]
        prompt = len(json.dumps(sent, default=str).encode())
        bound = request.max_tokens or self.max_tokens or _UNBOUNDED_REPLY
        reply = max(bound, books.meter.longest_reply, len(written.encode("utf-8", "replace")))
        usd = 0.0 if self.price is None else self.price.max_usd(prompt, reply)
        return Amount(usd, prompt + reply, requests=1)


@dataclass
class RecordingModel(ModelWrapper):
    """A model whose calls are booked under the current span of the current case."""

    _: KW_ONLY
    side_by_side: bool = False
    """True if questions may be asked ahead of their turn (`early_questions`): no reply depends on their order."""

    @property
    def unrecorded(self) -> ChatModel | None:
        """The wrapped model; None if it has to be asked one question after the other."""
        return self.model if self.side_by_side else None

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model and book usage, cost and role, of an error too.

        Raises:
            ModelError: As the wrapped model does; `case_budget` if the case may ask no more.
        """
        tracer = get_current_tracer()
        _check_case_budget(tracer)
        tracer.note_request(request)
        try:
            reply = answer_in_turn(self.model, request)
        except ModelError as error:
            tracer.note_failed_request(request.role, error)
            raise
        tracer.note_model_reply(request.role, reply, count_oddities(request, reply))
        return reply


def _check_case_budget(tracer: Tracer) -> None:
    """Raise a ModelError if the case has used up its tokens or seconds."""
    if tracer.usage_log is None:
        return
    budget = tracer.usage_log.meter.budget
    if budget.case_tokens is not None and tracer.tokens >= budget.case_tokens:
        text = f"budget.case_tokens={budget.case_tokens} is used up ({tracer.tokens:,} tokens)"
        raise ModelError(ErrorKind.CASE_BUDGET, text)
    if budget.case_seconds is not None and tracer.seconds >= budget.case_seconds:
        text = f"budget.case_seconds={budget.case_seconds:g} is used up ({tracer.seconds:.1f} s)"
        raise ModelError(ErrorKind.CASE_BUDGET, text)


class RetryPolicy(BaseModel):
    """The patience with which a model is asked again; `retry:` in its YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    attempts: int = Field(default=8, ge=1)
    """Most requests for one reply."""
    base_s: float = Field(default=1.0, ge=0)
    """Bound of the first wait in seconds; it doubles with each attempt, and the wait is drawn below it."""
    longest_s: float = Field(default=60.0, ge=0)
    """Bound of the later waits. A server's Retry-After may be longer."""
    total_s: float = Field(default=600.0, ge=0)
    """Most seconds spent between the requests for one reply, and before them in the queue for a server that
    refused some; rather than wait longer, we give up."""
    empty_retries: int = Field(default=3, ge=0)
    """How often an empty reply is asked for again before it is delivered as it is."""


NO_RETRY = RetryPolicy(attempts=1, empty_retries=0)
"""For scripted models, whose answer would be the same again."""


@dataclass(frozen=True)
class RetryTiming:
    """The outside world as a retry sees it; tests hand in fakes."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = field(default_factory=lambda: random.Random().random)
    """A number in [0, 1). Waits must differ between threads; no result depends on them."""


@dataclass
class RetryingModel(ModelWrapper):
    """A model that is asked again where that may help."""

    policy: RetryPolicy
    timing: RetryTiming = field(default_factory=RetryTiming)

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask until there is a reply, or an error that lasts.

        An empty reply, and one whose call was lost, is asked for again too; a paused one is sent back, and goes
        on. What all of them cost is part of the reply's cost, or of the error's.

        Raises:
            ModelError: The last one, with `attempts`, `usage` and `cost_usd` of all of them.
        """
        start = self.timing.clock()
        patience, asked, attempt, spent = Patience(self.policy.total_s), request, 0, _SpentOnReplies()
        while True:
            attempt += 1
            try:
                with use_patience(patience):
                    reply = self.model.complete(asked)
                last = attempt >= self.policy.attempts
                spent.add(reply.usage, reply.cost_usd)
                if reply.ending is Ending.PAUSED:
                    if last:
                        raise ModelError(
                            ErrorKind.SERVER_ERROR, f"the server paused its reply {attempt} times"
                        )
                    asked = replace(asked, messages=[*asked.messages, reply.message])
                    continue
                # A cut one would be cut at the same place again.
                good = reply.cut or not lacks_answer(reply)
                if good or last or spent.again >= self.policy.empty_retries:
                    begun = asked.messages[len(request.messages) :]
                    return replace(
                        spent.complete_reply(reply, begun),
                        attempts=attempt - 1 if reply.from_cache else attempt,
                        latency_s=self.timing.clock() - start,
                    )
                spent.note_asked_again(reply)
                pause = self._pause_s(attempt, None)
            except ModelError as error:
                spent.add(error.usage, error.cost_usd)
                pause = self._pause_s(attempt, error.retry_after_s)
                gives_up = attempt >= self.policy.attempts or pause > patience.left_s
                attempt -= isinstance(error, NoTurn)
                if gives_up or isinstance(error, NoTurn) or error.kind.consequence is not Consequence.RETRY:
                    error.attempts, error.usage, error.cost_usd = attempt, spent.usage, spent.cost_usd
                    raise
            books = get_current_tracer().usage_log
            with nullcontext() if books is None else books.meter.count_wait(retry=True):
                self.timing.sleep(pause)
            patience.left_s -= pause

    def _pause_s(self, attempt: int, asked_s: float | None) -> float:
        bound = min(self.policy.longest_s, self.policy.base_s * 2.0 ** min(attempt - 1, 30))
        jitter = self.timing.draw() * bound
        # A little jitter on top of Retry-After, or all who were sent away come back in the same moment.
        return jitter if asked_s is None else asked_s + min(jitter, 0.1 * asked_s)


@dataclass
class _SpentOnReplies:
    """Sum of the answers to one question."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    empties: int = 0
    lost_calls: int = 0

    @property
    def again(self) -> int:
        """Replies that were asked for again."""
        return self.empties + self.lost_calls

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage += usage
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd

    def note_asked_again(self, reply: ChatReply) -> None:
        if reply.ending is Ending.MALFORMED_CALL:
            self.lost_calls += 1
        else:
            self.empties += 1

    def complete_reply(self, reply: ChatReply, begun: Sequence[ChatMessage]) -> ChatReply:
        """The reply with all of it, and with what was said before its server paused."""
        before = [block for message in begun for block in message["content"] or ()]
        message = (
            {**reply.message, "content": [*before, *(reply.message["content"] or ())]}
            if begun
            else reply.message
        )
        lost = {MALFORMED_CALL: self.lost_calls} if self.lost_calls else {}
        return replace(
            reply,
            message=message,
            usage=self.usage,
            cost_usd=self.cost_usd,
            empty_before=self.empties,
            odd={**reply.odd, **lost},
        )
