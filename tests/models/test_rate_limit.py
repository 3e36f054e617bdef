"""The rate at which a model is asked, and asked again: bounds, refusals, waits, processes that share it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.base.ledger import Ledger
from agentsys.errors import ConfigError
from agentsys.models.budget import Meter, UsageLog
from agentsys.models.build_model import parse_card
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
from agentsys.models.endings import Ending
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import MeteredModel, RetryingModel, RetryPolicy, RetryTiming
from agentsys.models.wrappers.rate_limit import (
    NoTurn,
    RateLimitedModel,
    RateLimiter,
    RatePolicy,
    RateState,
    apply_refusal,
    apply_reply,
    apply_request,
    apply_retry_after,
    are_stray_refusals,
    compute_seconds_until_send,
)
from agentsys.runs.compose import compose


class Clock:
    """A clock that only goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(
    st.lists(st.floats(0, 5), max_size=30),
    st.floats(1, 10_000),
    st.lists(st.booleans(), min_size=30, max_size=30),
)
@settings(max_examples=25, deadline=None)
def test_whatever_happens_a_rate_stays_a_rate(gaps: list[float], asked: float, fails: list[bool]) -> None:
    pace, policy, now = RateState(), RatePolicy(requests=asked), 1_000.0
    for gap, failed in zip(gaps, fails, strict=False):
        now += gap
        assert compute_seconds_until_send(pace, now) >= 0
        pace = apply_request(pace, policy, now, 10.0)
        told = apply_refusal(apply_retry_after(pace, now + gap), now, 5.0)
        pace = told if failed else apply_reply(pace, policy, now, 3.0, waited=True)
        assert pace.found is None or pace.found >= 1 / 60
        assert compute_seconds_until_send(pace, now + 60 * 2 + max(gaps)) == 0.0  # it always ends


def test_a_refusal_cuts_once_and_growth_is_careful_near_the_last_one() -> None:
    cut = apply_refusal(RateState(found=8.0), 100.0, 1.0)
    assert (cut.found, cut.refused_at_rate) == (6.0, 8.0)
    assert apply_refusal(cut, 100.5, 1.0) == cut  # sent before the cut
    assert apply_refusal(cut, 102.0, 1.0).found == 4.5
    policy = RatePolicy()
    assert apply_reply(cut, policy, 101.0, 0, waited=False).found == 6.0  # nobody waits: it is not too small
    far = apply_reply(cut, policy, 101.0, 0, waited=True)
    assert far.found == pytest.approx(6.3)
    near = apply_reply(RateState(found=7.9, refused_at_rate=8.0, cut_at=100.0), policy, 101.0, 0, waited=True)
    assert near.found == pytest.approx(7.9 * 1.01)


def test_few_refusals_have_another_cause_than_the_rate() -> None:
    assert are_stray_refusals([True, True]) and not are_stray_refusals([True, True, True])
    assert are_stray_refusals([True] * 3 + [False] * 61) and not are_stray_refusals([True] * 4 + [False] * 60)
    pace = apply_retry_after(RateState(), 107.0)
    assert compute_seconds_until_send(pace, 101.0) == 6.0 and compute_seconds_until_send(pace, 107.0) == 0.0
    assert (
        compute_seconds_until_send(RateState(next_request=99_999.0), 100.0) == 0.0
    )  # somebody set the clock


class Counting:
    """A model that answers with so many tokens, or fails in the given ways first."""

    name = "counting"

    def __init__(self, *fails: ModelError, tokens: int = 0) -> None:
        self.tokens, self.fails = tokens, list(fails)

    def complete(self, request: ChatRequest) -> ChatReply:
        if self.fails:
            raise self.fails.pop(0)
        return ChatReply(assistant("x"), Usage(self.tokens - self.tokens // 4, self.tokens // 4))


ASK = ChatRequest([user("Hi")])
PASSING = [ErrorKind.RATE_LIMITED, ErrorKind.OVERLOADED, ErrorKind.SERVER_ERROR, ErrorKind.TIMEOUT]


def failing(pacer: RateLimiter, kind: ErrorKind, asked_s: float | None = None) -> None:
    with pytest.raises(ModelError):
        RateLimitedModel(Counting(ModelError(kind, "later", asked_s)), pacer).complete(ASK)


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("asked_s", [10.0, 500.0])
def test_retry_after_holds_back_everyone_who_asks_the_same_model_in_full(
    kind: ErrorKind, asked_s: float
) -> None:
    clock = Clock()
    pacer = RateLimiter(clock=clock, sleep=clock.sleep)
    failing(pacer, kind, asked_s)  # whether this one tries again or gives up
    clock.sleep(4.0)
    RateLimitedModel(Counting(), pacer).complete(ASK)
    assert clock.now == 1_000_000.0 + asked_s


@pytest.mark.parametrize(
    ("kind", "asked_s"), [(ErrorKind.OVERLOADED, 601.0), (ErrorKind.BAD_REQUEST, 5.0), (PASSING[0], None)]
)
def test_what_nobody_would_wait_for_and_what_does_not_pass_hold_nobody_back(
    kind: ErrorKind, asked_s: float | None
) -> None:
    clock = Clock()
    pacer = RateLimiter(clock=clock, sleep=clock.sleep, patience_s=600.0)
    failing(pacer, kind, asked_s)
    assert not pacer.wait_turn(0) and clock.now == 1_000_000.0


def test_tokens_per_minute_count_prompts_and_replies() -> None:
    clock = Clock()
    pacer = RateLimiter(policy=RatePolicy(tokens=6000), clock=clock, sleep=clock.sleep)
    model = RateLimitedModel(Counting(tokens=1000), pacer)
    for _ in range(6):
        model.complete(ASK)
    assert clock.now - 1_000_000 == pytest.approx(50.0, abs=1.0)  # 5 of 1000 tokens, 100 a second


def test_two_processes_share_a_rate_and_what_was_refused(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "rates" / "m.json"
    one, other = (RateLimiter(path, clock=clock, sleep=clock.sleep) for _ in range(2))
    assert not one.wait_turn(0) and not path.exists()  # nothing to heed yet
    for _ in range(3):  # the third one tells that the rate is the cause
        failing(one, ErrorKind.RATE_LIMITED, 4.0)
    assert other.wait_turn(0) and clock.now == 1_000_012.0  # it heard of the other's Retry-After
    assert one.wait_turn(0) and clock.now > 1_000_012.5  # and they take turns at what was found


def between_two(pacer: RateLimiter, clock: Clock) -> float:
    """Seconds between two requests, each sent as soon as it may."""
    pacer.wait_turn(0)
    start = clock.now
    pacer.wait_turn(0)
    return clock.now - start


@pytest.mark.parametrize("policy", [None, RatePolicy(requests=60_000)])
def test_the_first_rate_is_three_quarters_of_what_was_sent_in_the_second_before_the_refusal(
    policy: RatePolicy | None,
) -> None:
    clock = Clock()
    pacer = RateLimiter(policy=policy, clock=clock, sleep=clock.sleep)
    for pause in (*[0.0] * 5, 2.0, *[0.0] * 8):
        clock.sleep(pause)
        pacer.wait_turn(0)
    for _ in range(3):
        failing(pacer, ErrorKind.RATE_LIMITED)
    assert between_two(pacer, clock) == pytest.approx(1 / (0.75 * (9 + 3)), abs=0.001)


def test_a_damaged_file_is_a_fresh_start(tmp_path: Path) -> None:
    (tmp_path / "rate.json").write_text('{"next_request": "soon"}')
    clock = Clock()
    pacer = RateLimiter(tmp_path / "rate.json", RatePolicy(requests=60), clock=clock, sleep=clock.sleep)
    pacer.wait_turn(0)
    pacer.wait_turn(0)
    assert clock.now == pytest.approx(1_000_001.0)


def test_who_comes_first_is_asked_first() -> None:
    clock, order, lock = Clock(), list[int](), threading.Lock()
    slow = threading.Event()

    def sleep(seconds: float) -> None:
        slow.wait(60)
        clock.sleep(seconds)

    pacer = RateLimiter(policy=RatePolicy(requests=60), clock=clock, sleep=sleep)
    pacer.wait_turn(0)

    def ask(number: int) -> None:
        pacer.wait_turn(0)
        with lock:
            order.append(number)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        while len(pacer._queue._waiting) <= number:
            pass
    slow.set()
    for thread in threads:
        thread.join(60)
    assert order == sorted(order)


def test_a_rate_is_typed_on_the_command_line_and_is_no_identity() -> None:
    rate = "+model.rate={requests: 500, tokens: 200000}"
    (with_rate,), (without,) = compose(["model=gpt-4o-mini", rate]), compose(["model=gpt-4o-mini"])
    assert parse_card(with_rate.model).rate == RatePolicy(requests=500, tokens=200_000)
    assert with_rate.config_hash == without.config_hash and with_rate.labels == without.labels


def test_a_models_yaml_gives_its_rate() -> None:
    fields = {"name": "m", "prose_name": "M", "rate": {"requests": 600, "tokens": 30_000}}
    assert parse_card(fields).rate == RatePolicy(requests=600, tokens=30_000)
    with pytest.raises(ConfigError, match="rate"):
        parse_card({**fields, "rate": {"requests": 0}})


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


class WaitingClock:
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
    retried = RetryingModel(model, RetryPolicy(), WaitingClock().timing())
    if kind.consequence is Consequence.RETRY:
        assert retried.complete(ASK).attempts == 2
    else:
        with pytest.raises(ModelError):
            retried.complete(ASK)
        assert model.asked == 1


def test_gives_up_after_the_last_attempt_and_says_how_many_there_were() -> None:
    model = Fates(*[error() for _ in range(9)])
    with pytest.raises(ModelError) as caught:
        RetryingModel(model, RetryPolicy(attempts=3), WaitingClock().timing()).complete(ASK)
    assert (caught.value.attempts, model.asked) == (3, 3)


def test_gives_up_rather_than_wait_longer_than_allowed() -> None:
    model = Fates(error(ErrorKind.RATE_LIMITED, 3600.0), GOOD)
    clock = WaitingClock()
    with pytest.raises(ModelError):
        RetryingModel(model, RetryPolicy(total_s=600.0), clock.timing()).complete(ASK)
    assert clock.slept == []


def test_retry_after_is_waited_for_in_full() -> None:
    clock = WaitingClock()
    model = Fates(error(ErrorKind.RATE_LIMITED, 30.0), GOOD)
    RetryingModel(model, RetryPolicy(), clock.timing(lambda: 0.0)).complete(ASK)
    assert clock.slept == [30.0]


def test_empty_replies_are_asked_for_again_and_paid_for() -> None:
    reply = RetryingModel(Fates(EMPTY, EMPTY, GOOD), RetryPolicy(), WaitingClock().timing()).complete(ASK)
    assert (reply.attempts, reply.cost_usd, reply.usage.prompt) == (3, 1.0, 6)


def test_an_empty_reply_that_a_bound_cut_would_be_cut_again_and_is_delivered() -> None:
    model = Fates(replace(EMPTY, ending=Ending.CUT), GOOD)
    assert RetryingModel(model, RetryPolicy(), WaitingClock().timing()).complete(ASK).cut
    assert model.asked == 1


@given(st.floats(0.0, 0.999), st.integers(1, 12))
def test_jittered_waits_stay_below_their_bounds(draw: float, failures: int) -> None:
    clock = WaitingClock()
    model = Fates(*[error() for _ in range(failures)], GOOD)
    policy = RetryPolicy(attempts=20, total_s=1e9)
    RetryingModel(model, policy, clock.timing(lambda: draw)).complete(ASK)
    bounds = [min(60.0, 2.0**n) for n in range(failures)]
    assert all(0 <= wait <= bound for wait, bound in zip(clock.slept, bounds, strict=True))


def refusing_server(clock: Clock, pacer: RateLimiter, total_s: float) -> RetryingModel:
    """A model whose server refuses everything, asked with so much patience."""
    model = Counting(*[ModelError(ErrorKind.RATE_LIMITED, "later") for _ in range(1000)])
    timing = RetryTiming(clock, clock.sleep, lambda: 0.5)
    policy = RetryPolicy(attempts=100, base_s=0.1, total_s=total_s)
    return RetryingModel(RateLimitedModel(model, pacer), policy, timing)


def test_waiting_for_a_server_that_refuses_counts_into_the_patience() -> None:
    clock = Clock()
    pacer = RateLimiter(clock=clock, sleep=clock.sleep)
    for _ in range(8):  # cases that end one after the other; the rate that was found is the same for all
        began = clock.now
        with pytest.raises(ModelError) as caught:
            refusing_server(clock, pacer, 4.0).complete(ASK)
        assert caught.value.kind is ErrorKind.RATE_LIMITED
        assert clock.now - began <= 4.0


def test_a_turn_that_would_come_too_late_sends_nothing_and_is_not_booked(tmp_path: Path) -> None:
    clock, asked = Clock(), Counting()
    pacer = RateLimiter(clock=clock, sleep=clock.sleep)
    failing(pacer, ErrorKind.OVERLOADED, 500.0)  # leaves all alone for so long
    books = UsageLog(Meter(), Ledger(tmp_path / "ledger.jsonl"))
    model = MeteredModel(RateLimitedModel(asked, pacer))
    with use_tracer(Tracer(usage_log=books)), pytest.raises(NoTurn, match="no turn within 60 s"):
        RetryingModel(model, RetryPolicy(total_s=60.0), RetryTiming(clock, clock.sleep)).complete(ASK)
    assert clock.now == 1_000_000.0 and not (tmp_path / "ledger.jsonl").exists()
    assert books.meter.last_error.startswith("rate_limited: no turn")


def test_waiting_for_a_rate_of_ones_own_has_no_bound() -> None:
    clock = Clock()
    pacer = RateLimiter(policy=RatePolicy(requests=0.1), clock=clock, sleep=clock.sleep)
    model = RetryingModel(RateLimitedModel(Counting(), pacer), RetryPolicy(total_s=5.0))
    for _ in range(3):
        model.complete(ASK)
    assert clock.now - 1_000_000.0 == pytest.approx(1200.0, abs=2.0)
