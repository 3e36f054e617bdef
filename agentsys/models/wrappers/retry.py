"""`RetryingModel`: asks again after errors that pass, with exponential backoff and full jitter.

The only place that retries: the SDKs' own retries are switched off, so that every request is counted. What
a refusal means for others who ask the same model is `RateLimitedModel`'s business. Which errors pass is in
`agentsys.models.chat` and docs/errors.md.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Consequence,
    ModelError,
    ModelWrapper,
    Usage,
)
from agentsys.models.reply_checks import is_empty_reply
from agentsys.models.trace import current_tracer


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
    """Most seconds spent between the requests for one reply; rather than wait longer, we give up."""
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


class RetryingModel(ModelWrapper):
    """A model that is asked again where that may help."""

    def __init__(self, model: ChatModel, policy: RetryPolicy, timing: RetryTiming | None = None) -> None:
        super().__init__(model)
        self.policy = policy
        self._timing = timing or RetryTiming()

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask until there is a reply, or an error that lasts.

        An empty reply is asked for again too. What empty and unusable answers cost is part of the reply's
        cost, or of the error's.

        Raises:
            ModelError: The last one, with `attempts`, `usage` and `cost_usd` of all of them.
        """
        start = self._timing.clock()
        waited, attempt, empties, wasted = 0.0, 0, 0, _WastedUsage()
        while True:
            attempt += 1
            try:
                reply = self.model.complete(request)
                # A cut one would be cut at the same place again.
                if reply.cut or not is_empty_reply(reply) or self._accepts_empty(attempt, empties):
                    reply = replace(reply, empty_before=empties)
                    return _add_wasted(reply, wasted, attempt, self._timing.clock() - start)
                empties += 1
                wasted.add(reply.usage, reply.cost_usd)
            except ModelError as error:
                wasted.add(error.usage, error.cost_usd)
                pause = self._pause_s(attempt, error.retry_after_s)
                if error.kind.consequence is not Consequence.RETRY or self._gives_up(attempt, waited + pause):
                    error.attempts, error.usage, error.cost_usd = attempt, wasted.usage, wasted.cost_usd
                    raise
            else:
                pause = self._pause_s(attempt, None)
            self._wait(pause)
            waited += pause

    def _accepts_empty(self, attempt: int, empties: int) -> bool:
        return empties >= self.policy.empty_retries or attempt >= self.policy.attempts

    def _gives_up(self, attempt: int, wait_s: float) -> bool:
        return attempt >= self.policy.attempts or wait_s > self.policy.total_s

    def _pause_s(self, attempt: int, asked_s: float | None) -> float:
        bound = min(self.policy.longest_s, self.policy.base_s * 2.0 ** min(attempt - 1, 30))
        jitter = self._timing.draw() * bound
        # A little jitter on top of Retry-After, or all who were sent away come back in the same moment.
        return jitter if asked_s is None else asked_s + min(jitter, 0.1 * asked_s)

    def _wait(self, pause: float) -> None:
        books = current_tracer().usage_log
        with nullcontext() if books is None else books.meter.count_wait(retry=True):
            self._timing.sleep(pause)


@dataclass
class _WastedUsage:
    """The tokens and cost of the answers before the last one."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage += usage
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd


def _add_wasted(reply: ChatReply, wasted: _WastedUsage, attempts: int, latency_s: float) -> ChatReply:
    usage = wasted.usage + reply.usage
    unknown = wasted.cost_usd is None or reply.cost_usd is None
    cost = None if unknown else (wasted.cost_usd or 0.0) + (reply.cost_usd or 0.0)
    requests = attempts - 1 if reply.from_cache else attempts
    return replace(reply, usage=usage, cost_usd=cost, attempts=requests, latency_s=latency_s)
