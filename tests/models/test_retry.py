"""`Retried` with a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.chat import (
    ChatReply,
    ChatRequest,
    Consequence,
    ErrorKind,
    ModelError,
    Usage,
    assistant,
    user,
)
from agentsys.models.wrappers.accounting import RetryingModel, RetryPolicy, RetryTiming

ASK = ChatRequest([user("Hi")])
GOOD = ChatReply(assistant("yes"), Usage(prompt=2, completion=1), cost_usd=0.5)
EMPTY = ChatReply(assistant(None), Usage(prompt=2), cost_usd=0.25)


class Fates:
    """A model that meets the given fates in turn."""

    name = "fated"

    def __init__(self, *fates: ChatReply | ModelError) -> None:
        self.fates = list(fates)
        self.asked = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        fate = self.fates.pop(0)
        if isinstance(fate, ModelError):
            raise fate
        return fate


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def timing(self, draw: Callable[[], float] = lambda: 1.0) -> RetryTiming:
        return RetryTiming(lambda: self.now, self.sleep, draw)


def error(kind: ErrorKind = ErrorKind.SERVER_ERROR, retry_after_s: float | None = None) -> ModelError:
    return ModelError(kind, "x", retry_after_s)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_only_errors_that_pass_are_retried(kind: ErrorKind) -> None:
    model = Fates(error(kind), GOOD)
    retried = RetryingModel(model, RetryPolicy(), Clock().timing())
    if kind.consequence is Consequence.RETRY:
        assert retried.complete(ASK).attempts == 2
    else:
        with pytest.raises(ModelError):
            retried.complete(ASK)
        assert model.asked == 1


def test_gives_up_after_the_last_attempt_and_says_how_many_there_were() -> None:
    model = Fates(*[error() for _ in range(9)])
    with pytest.raises(ModelError) as caught:
        RetryingModel(model, RetryPolicy(attempts=3), Clock().timing()).complete(ASK)
    assert (caught.value.attempts, model.asked) == (3, 3)


def test_gives_up_rather_than_wait_longer_than_allowed() -> None:
    model = Fates(error(ErrorKind.RATE_LIMITED, 3600.0), GOOD)
    clock = Clock()
    with pytest.raises(ModelError):
        RetryingModel(model, RetryPolicy(total_s=600.0), clock.timing()).complete(ASK)
    assert clock.slept == []


def test_retry_after_is_waited_for_in_full() -> None:
    clock = Clock()
    model = Fates(error(ErrorKind.RATE_LIMITED, 30.0), GOOD)
    RetryingModel(model, RetryPolicy(), clock.timing(lambda: 0.0)).complete(ASK)
    assert clock.slept == [30.0]


def test_empty_replies_are_asked_for_again_and_paid_for() -> None:
    reply = RetryingModel(Fates(EMPTY, EMPTY, GOOD), RetryPolicy(), Clock().timing()).complete(ASK)
    assert (reply.attempts, reply.cost_usd, reply.usage.prompt) == (3, 1.0, 6)


def test_an_empty_reply_that_a_bound_cut_would_be_cut_again_and_is_delivered() -> None:
    model = Fates(replace(EMPTY, cut=True), GOOD)
    assert RetryingModel(model, RetryPolicy(), Clock().timing()).complete(ASK).cut
    assert model.asked == 1


@given(st.floats(0.0, 0.999), st.integers(1, 12))
def test_jittered_waits_stay_below_their_bounds(draw: float, failures: int) -> None:
    clock = Clock()
    model = Fates(*[error() for _ in range(failures)], GOOD)
    policy = RetryPolicy(attempts=20, total_s=1e9)
    RetryingModel(model, policy, clock.timing(lambda: draw)).complete(ASK)
    bounds = [min(60.0, 2.0**n) for n in range(failures)]
    assert all(0 <= wait <= bound for wait, bound in zip(clock.slept, bounds, strict=True))
