"""`RateLimitedModel`: sends no faster than a model's server takes it, in all processes of a run together.

The first part is pure: how a refusal or a reply changes the rate, with time as an argument.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from agentsys.base.atomic_file import CAN_LOCK, lock_file, make_folder
from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import ChatReply, ChatRequest, Consequence, ErrorKind, ModelError, ModelWrapper
from agentsys.models.trace import get_current_tracer


class RatePolicy(BaseModel):
    """The rate a model is asked at; `rate:` in its YAML. Without a number it is found from refusals alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests: float | None = Field(default=None, gt=0)
    """Most requests per minute."""
    tokens: float | None = Field(default=None, gt=0)
    """Most tokens per minute, prompts and replies together."""


@dataclass(frozen=True)
class RateState:
    """The state of a rate. Moments are seconds since the epoch: several machines may share it."""

    next_request: float = 0.0
    """When the next request may be sent."""
    next_token: float = 0.0
    """When what was sent so far is no longer above the tokens per minute."""
    closed_until: float = 0.0
    """Until when the server asked to be left alone."""
    found: float | None = None
    """Requests a second that were found from refusals; None: none is known."""
    refused_at_rate: float = float("inf")
    """What was found when a request was refused last."""
    cut_at: float = 0.0
    """When the rate was made smaller last."""
    grown_at: float = 0.0
    """When it was made larger last."""


_CUT_FACTOR = 0.75
"""What is left of a rate after a refusal."""
RECENT_REQUESTS = 64
"""How many of a process's last requests tell whether refusals come of its rate."""
_STRAY_SHARE = 0.06
"""Share of refusals among these up to which they have another cause than its rate.

Gateways refuse a few at any rate, and slowing down for these would never end."""
_MAX_STRAYS = 2
"""Refusals among them that are no share yet."""
_MIN_RATE = 1 / 60
"""Requests a second that a rate is never cut below."""
_COOL_S = 1.0
"""Refusals within so many seconds of a cut were sent before it."""
_GROWTH, _CAREFUL_GROWTH = 0.05, 0.01
"""By how much a rate that is fully used grows in a second, and close to where a request was refused."""
_CLOSE_SHARE = 0.9
_FORGET_S = 120.0
"""Without a refusal for so long, where the last one was says nothing any more."""
_LOST_S = 900.0
"""A moment further ahead comes from a clock that was set."""


def compute_seconds_until_send(pace: RateState, now: float) -> float:
    """Seconds until the next request may be sent; 0: now."""
    ahead = max(pace.next_request, pace.next_token, pace.closed_until) - now
    return 0.0 if ahead > _LOST_S else max(0.0, ahead)


def apply_request(pace: RateState, policy: RatePolicy, now: float, tokens: float) -> RateState:
    """The state after a request of so many tokens went out."""
    rates = [rate for rate in (pace.found, policy.requests and policy.requests / 60) if rate is not None]
    after = now + 1 / min(rates) if rates else now
    return dataclasses.replace(
        pace, next_request=after, next_token=_compute_next_token_time(pace, policy, now, tokens)
    )


def apply_reply(
    pace: RateState, policy: RatePolicy, now: float, more_tokens: float, *, waited: bool
) -> RateState:
    """The state after a reply; `more_tokens` came beyond what was thought at sending, and may be negative.

    `waited`: its request had to wait. Only a rate that is fully used can be told to be too small.
    """
    pace = dataclasses.replace(pace, next_token=_compute_next_token_time(pace, policy, now, more_tokens))
    if pace.found is None or not waited:
        return pace
    seconds = min(1.0, max(0.0, now - max(pace.grown_at, pace.cut_at)))
    known = pace.refused_at_rate if now - pace.cut_at < _FORGET_S else float("inf")
    growth = _GROWTH if pace.found < _CLOSE_SHARE * known else _CAREFUL_GROWTH
    return dataclasses.replace(pace, found=pace.found * (1 + growth * seconds), grown_at=now)


def apply_retry_after(pace: RateState, until: float) -> RateState:
    """The state after the server asked to be left alone until a moment."""
    return dataclasses.replace(pace, closed_until=max(pace.closed_until, until))


def apply_refusal(pace: RateState, now: float, sent_rate: float) -> RateState:
    """The state after the server said that it was asked too often, at `sent_rate` requests a second of ours."""
    if now - pace.cut_at < _COOL_S:
        return pace
    rate = sent_rate if pace.found is None else pace.found
    cut = max(_MIN_RATE, _CUT_FACTOR * rate)
    return dataclasses.replace(pace, found=cut, refused_at_rate=rate, cut_at=now, grown_at=now)


def are_stray_refusals(refusals: Collection[bool]) -> bool:
    """True if so few of a process's last requests were refused that its rate is not the cause."""
    return sum(refusals) <= max(_MAX_STRAYS, _STRAY_SHARE * len(refusals))


def _compute_next_token_time(pace: RateState, policy: RatePolicy, now: float, tokens: float) -> float:
    if policy.tokens is None:
        return pace.next_token
    return max(pace.next_token, now) + tokens * 60 / policy.tokens


@dataclass
class Patience:
    """The seconds that may still be waited for one reply."""

    left_s: float


class NoTurn(ModelError):
    """A request was not sent: its turn would have come too late."""


_PATIENCE: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def use_patience(patience: Patience) -> Iterator[None]:
    """Bound inside the block what this thread waits for its turn, and count it."""
    token = _PATIENCE.set(patience)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


_POLL_EVERY_S = 0.1
"""Seconds between two looks whether another process was refused; each gives up the interpreter's lock."""


class RateLimiter:
    """The rate of one model, kept in a file that the processes of a run share. Used from many threads.

    Requests go out in the order in which they came, each as soon as it may, and none while the server wants
    to be left alone (Retry-After); at a refusal the rate is cut, and while it is fully used and nothing is
    refused it grows back.

    Args:
        path: The file; made when there is anything to keep. None: the rate is kept in this process alone.
        policy: The bounds.
        patience_s: A Retry-After beyond this is heeded by nobody: who asks gives up rather than wait so long.
        clock: Seconds since the epoch.
        sleep: Waits.
    """

    def __init__(
        self,
        path: Path | None = None,
        policy: RatePolicy | None = None,
        *,
        patience_s: float = 600.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.policy = policy or RatePolicy()
        self._path, self._patience_s, self._clock, self._sleep = path, patience_s, clock, sleep
        self._state = RateState()
        self._lock, self._queue = threading.Lock(), _FairLock()
        self._sent_times = deque[float](maxlen=256)
        self._refusals = deque[bool](maxlen=RECENT_REQUESTS)
        self._has_limits = self.policy != RatePolicy()
        self._poll_at = 0.0

    def wait_turn(self, tokens: float) -> bool:
        """Wait until a request of so many tokens may be sent, behind those that came before it.

        Returns:
            Whether it had to wait.

        Raises:
            NoTurn: If the server refused so many requests that it would wait longer than `use_patience` allows.
                Waiting for a rate of the user's own has no bound.
        """
        if not self._is_limiting:
            self._note_sent()
            return False
        waited, began, patience = False, self._clock(), _PATIENCE.get()
        with self._queue.wait_turn():
            while pause := self._try_send(tokens):
                waited, now = True, self._clock()
                refused = self._state.found is not None or self._state.closed_until > now
                if patience is not None and refused and now - began + pause > patience.left_s:
                    raise NoTurn(
                        ErrorKind.RATE_LIMITED,
                        f"no turn within {patience.left_s:.0f} s: the server refuses more",
                    )
                with _count_wait():
                    # Others may be refused meanwhile, or the rate grow: look again.
                    self._sleep(min(pause, 1.0))
        if waited and refused and patience is not None:
            patience.left_s -= self._clock() - began
        return waited

    def note_reply(self, more_tokens: float, *, waited: bool) -> None:
        """Book that a reply came; see `apply_reply`."""
        with self._lock:
            self._refusals.append(False)
        # Not looked up once more: a request that went out before anybody was refused is in no account.
        if self._has_limits:
            now = self._clock()
            self._change_state(lambda pace: apply_reply(pace, self.policy, now, more_tokens, waited=waited))

    def note_failure(self, error: ModelError) -> None:
        """Book an error; the server may have said that it was asked too often, or when to ask again."""
        now = self._clock()
        asked_s = error.retry_after_s if error.kind.consequence is Consequence.RETRY else None
        if asked_s is not None and asked_s <= self._patience_s:
            until = now + asked_s
            self._change_state(lambda pace: apply_retry_after(pace, until))
        if error.kind is not ErrorKind.RATE_LIMITED:
            return
        with self._lock:
            sent_rate = max(1, sum(now - moment <= 1.0 for moment in self._sent_times))
            self._refusals.append(True)
            stray = are_stray_refusals(self._refusals)
        if not stray:
            self._change_state(lambda pace: apply_refusal(pace, now, float(sent_rate)))

    def _change_state(self, changed: Callable[[RateState], RateState]) -> None:
        self._has_limits = True
        with self._hold_state() as keep:
            keep(changed(self._state))

    @property
    def _is_limiting(self) -> bool:
        """True if any limit holds; none does until somebody was refused or held back."""
        if not self._has_limits and self._path is not None and self._clock() >= self._poll_at:
            self._poll_at = self._clock() + _POLL_EVERY_S
            self._has_limits = self._path.exists()
        return self._has_limits

    def _try_send(self, tokens: float) -> float:
        """Book a request if it may be sent now; else return the seconds until it may."""
        with self._hold_state() as keep:
            now = self._clock()
            pause = compute_seconds_until_send(self._state, now)
            if not pause:
                keep(apply_request(self._state, self.policy, now, tokens))
        if not pause:
            self._note_sent()
        return pause

    def _note_sent(self) -> None:
        with self._lock:
            self._sent_times.append(self._clock())

    @contextmanager
    def _hold_state(self) -> Iterator[Callable[[RateState], None]]:
        """Hold the state against all others; what the yielded function gets becomes the state."""
        with self._lock, _lock_file(self._path) as file:
            if file is not None:
                self._state = _read_state(file) or self._state

            def keep(pace: RateState) -> None:
                self._state = pace
                if file is not None:
                    data = json.dumps(dataclasses.asdict(pace)).encode()
                    with contextlib.suppress(OSError):  # a full disk: then this process keeps to it alone
                        os.pwrite(file, data.ljust(_FILE_BYTES), 0)

            yield keep


_FILE_BYTES = 512
"""Bytes of the file: so every writing covers the one before."""


def _read_state(file: int) -> RateState | None:
    try:
        stored = json.loads(os.pread(file, _FILE_BYTES, 0))
        return RateState(**{str(name): float(value) for name, value in stored.items() if value is not None})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@contextmanager
def _lock_file(path: Path | None) -> Iterator[int | None]:
    """The file of a rate, held against other processes; None where there can be none."""
    with contextlib.ExitStack() as stack:
        file = None
        if path is not None and CAN_LOCK:
            with contextlib.suppress(OSError):
                make_folder(path.parent)
                file = stack.enter_context(lock_file(path))
        yield file


class _FairLock:
    """Lets threads pass one by one, in the order in which they came; a plain lock knows no order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = deque[threading.Event]()

    @contextmanager
    def wait_turn(self) -> Iterator[None]:
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            if len(self._waiting) == 1:
                mine.set()
        try:
            mine.wait()
            yield
        finally:
            with self._lock:
                self._waiting.remove(mine)
                if self._waiting:
                    self._waiting[0].set()


def _count_wait() -> contextlib.AbstractContextManager[None]:
    books = get_current_tracer().usage_log
    return contextlib.nullcontext() if books is None else books.meter.count_wait(retry=False)


@dataclass
class RateLimitedModel(ModelWrapper):
    """A model that is asked no faster than its rate allows.

    Stands next to the provider: a hit of the cache does not wait.
    """

    pacer: RateLimiter

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model once, when its turn has come.

        Raises:
            ModelError: If the wrapped model raises it; a refusal for the rate slows down all who ask, and a
                Retry-After holds them back.
        """
        guess = 0.0 if self.pacer.policy.tokens is None else guess_prompt_tokens(request)
        waited = self.pacer.wait_turn(guess)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            self.pacer.note_failure(error)
            raise
        used = reply.usage.prompt + reply.usage.completion
        self.pacer.note_reply(used - guess if used else 0.0, waited=waited)
        return reply


def guess_prompt_tokens(request: ChatRequest) -> float:
    """Tokens of a request's prompt: about one for four bytes of it."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    plain = [{"role": message["role"], "content": message["content"]} for message in request.messages]
    return len(to_json_bytes([plain, tools])) / 4
