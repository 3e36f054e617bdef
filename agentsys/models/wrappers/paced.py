"""`Paced`: sends requests no faster than a model's server takes them, in all processes of a run together."""

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
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.wire_text import encode
from agentsys.models.trace import current_tracer

try:
    import fcntl
except ImportError:  # Windows: then each process keeps to the rate by itself
    fcntl = None  # type: ignore[assignment]


class RatePolicy(BaseModel):
    """The rate a model is asked at; `rate:` in its YAML. Without a number it is found from refusals alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests: float | None = Field(default=None, gt=0)
    """Most requests per minute."""
    tokens: float | None = Field(default=None, gt=0)
    """Most tokens per minute, prompts and replies together."""


@dataclass(frozen=True)
class Pace:
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


_CUT = 0.75
"""What is left of a rate after a refusal."""
_STRAY = 0.06
"""Share of refusals among a process's last requests up to which they have another cause than its rate.

Gateways refuse a few at any rate, and slowing down for these would never end."""
_FEW = 2
"""Refusals among them that are no share yet."""
_SLOWEST = 1 / 60
"""Requests a second that a rate is never cut below."""
_COOL_S = 1.0
"""Refusals within so many seconds of a cut were sent before it."""
_GROWTH, _CAREFUL_GROWTH = 0.05, 0.01
"""By how much a rate that is fully used grows in a second, and close to where a request was refused."""
_CLOSE = 0.9
_FORGET_S = 120.0
"""Without a refusal for so long, where the last one was says nothing any more."""
_LOST_S = 900.0
"""A moment further ahead comes from a clock that was set."""


def may_send(pace: Pace, policy: RatePolicy, now: float) -> float:
    """Seconds until the next request may be sent; 0: now."""
    ahead = max(pace.next_request, pace.next_token, pace.closed_until) - now
    return 0.0 if ahead > _LOST_S else max(0.0, ahead)


def sent(pace: Pace, policy: RatePolicy, now: float, tokens: float) -> Pace:
    """The state after a request of so many tokens went out."""
    rates = [rate for rate in (pace.found, policy.requests and policy.requests / 60) if rate is not None]
    after = now + 1 / min(rates) if rates else now
    return dataclasses.replace(pace, next_request=after, next_token=_owing(pace, policy, now, tokens))


def answered(pace: Pace, policy: RatePolicy, now: float, more_tokens: float, *, waited: bool) -> Pace:
    """The state after a reply.

    Args:
        pace: The state before.
        policy: The bounds.
        now: The moment.
        more_tokens: What request and reply came to beyond what was thought when it was sent; may be negative.
        waited: Whether its request had to wait: only a rate that is fully used can be told to be too small.
    """
    pace = dataclasses.replace(pace, next_token=_owing(pace, policy, now, more_tokens))
    if pace.found is None or not waited:
        return pace
    seconds = min(1.0, max(0.0, now - max(pace.grown_at, pace.cut_at)))
    known = pace.refused_at_rate if now - pace.cut_at < _FORGET_S else float("inf")
    growth = _GROWTH if pace.found < _CLOSE * known else _CAREFUL_GROWTH
    return dataclasses.replace(pace, found=pace.found * (1 + growth * seconds), grown_at=now)


def refused(pace: Pace, now: float, asked_s: float | None, seen: float, *, stray: bool = False) -> Pace:
    """The state after the server said that it was asked too often.

    Args:
        pace: The state before.
        now: The moment.
        asked_s: Seconds that the server wants to be left alone; None: it did not say.
        seen: Requests a second that this process has sent lately.
        stray: Whether so few are refused that the rate is not the cause.
    """
    if asked_s is not None:
        pace = dataclasses.replace(pace, closed_until=max(pace.closed_until, now + asked_s))
    if stray or now - pace.cut_at < _COOL_S:
        return pace
    rate = seen if pace.found is None else pace.found
    cut = max(_SLOWEST, _CUT * rate)
    return dataclasses.replace(pace, found=cut, refused_at_rate=rate, cut_at=now, grown_at=now)


def is_stray(refusals: Collection[bool]) -> bool:
    """Whether so few of a process's last requests were refused that its rate is not the cause."""
    return sum(refusals) <= max(_FEW, _STRAY * len(refusals))


def _owing(pace: Pace, policy: RatePolicy, now: float, tokens: float) -> float:
    if policy.tokens is None:
        return pace.next_token
    return max(pace.next_token, now) + tokens * 60 / policy.tokens


class Pacer:
    """The rate of one model, kept in a file that the processes of a run share. Used from many threads.

    Requests go out in the order in which they came, each as soon as it may; at a refusal the rate is cut, and
    while it is fully used and nothing is refused it grows back.

    Args:
        path: The file; made when there is anything to keep. None: the rate is kept in this process alone.
        policy: The bounds.
        clock: Seconds since the epoch.
        sleep: Waits.
    """

    def __init__(
        self,
        path: Path | None = None,
        policy: RatePolicy | None = None,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.policy = policy or RatePolicy()
        self._path, self._clock, self._sleep = path, clock, sleep
        self._pace = Pace()
        self._lock, self._queue = threading.Lock(), _InTurns()
        self._lately = deque[float](maxlen=256)
        self._refusals = deque[bool](maxlen=64)
        self._needed = self.policy != RatePolicy()

    def wait(self, tokens: float) -> bool:
        """Wait until a request of so many tokens may be sent, behind those that came before it.

        Returns:
            Whether it had to wait.
        """
        if not self._under_control:
            self._note_sent()
            return False
        waited = False
        with self._queue.turn():
            while pause := self._try(tokens):
                waited = True
                with _counted_wait():
                    # Others may be refused meanwhile, or the rate grow: look again.
                    self._sleep(min(pause, 1.0))
        return waited

    def answered(self, more_tokens: float, *, waited: bool) -> None:
        """A reply came; see `answered`."""
        with self._lock:
            self._refusals.append(False)
        if self._under_control:
            with self._shared() as keep:
                keep(answered(self._pace, self.policy, self._clock(), more_tokens, waited=waited))

    def refused(self, asked_s: float | None) -> None:
        """The server said that it was asked too often; see `refused`."""
        self._needed = True
        now = self._clock()
        with self._lock:
            seen = max(1, sum(now - moment <= 1.0 for moment in self._lately))
            self._refusals.append(True)
            stray = is_stray(self._refusals)
        with self._shared() as keep:
            keep(refused(self._pace, now, asked_s, float(seen), stray=stray))

    @property
    def _under_control(self) -> bool:
        """Whether there is anything to heed; as long as nobody was refused there is not."""
        if not self._needed and self._path is not None and self._path.exists():
            self._needed = True
        return self._needed

    def _try(self, tokens: float) -> float:
        """Take the next place if it is due; else the seconds until it is."""
        with self._shared() as keep:
            now = self._clock()
            pause = may_send(self._pace, self.policy, now)
            if not pause:
                keep(sent(self._pace, self.policy, now, tokens))
        if not pause:
            self._note_sent()
        return pause

    def _note_sent(self) -> None:
        with self._lock:
            self._lately.append(self._clock())

    @contextmanager
    def _shared(self) -> Iterator[Callable[[Pace], None]]:
        """Hold the state against everybody, as it is now; what is given to the yielded function is kept."""
        with self._lock, _locked(self._path) as file:
            if file is not None:
                self._pace = _read(file) or self._pace

            def keep(pace: Pace) -> None:
                self._pace = pace
                if file is not None:
                    data = json.dumps(dataclasses.asdict(pace)).encode()
                    with contextlib.suppress(OSError):  # a full disk: then this process keeps to it alone
                        os.pwrite(file, data.ljust(_SIZE), 0)

            yield keep


_SIZE = 512
"""Bytes of the file: so every writing covers the one before."""


def _read(file: int) -> Pace | None:
    try:
        kept = json.loads(os.pread(file, _SIZE, 0))
        return Pace(**{str(name): float(value) for name, value in kept.items() if value is not None})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@contextmanager
def _locked(path: Path | None) -> Iterator[int | None]:
    """The file of a rate, held against other processes; None where there can be none."""
    if path is None or fcntl is None:
        yield None
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


class _InTurns:
    """Lets threads pass one by one, in the order in which they came; a plain lock knows no order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = deque[threading.Event]()

    @contextmanager
    def turn(self) -> Iterator[None]:
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


def _counted_wait() -> contextlib.AbstractContextManager[None]:
    books = current_tracer().books
    return contextlib.nullcontext() if books is None else books.meter.wait(retry=False)


class Paced:
    """A model that is asked no faster than its rate allows.

    Stands next to the provider: a hit of the cache does not wait.

    Args:
        model: The model to ask.
        pacer: Its rate.
    """

    def __init__(self, model: ChatModel, pacer: Pacer) -> None:
        self.model = model
        self._pacer = pacer

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model once, when its turn has come.

        Raises:
            ModelError: If the wrapped model raises it; a refusal for the rate slows down all who ask.
        """
        guess = 0.0 if self._pacer.policy.tokens is None else _guessed_tokens(request)
        waited = self._pacer.wait(guess)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            if error.kind is ErrorKind.RATE_LIMITED:
                self._pacer.refused(error.retry_after_s)
            raise
        used = reply.usage.prompt + reply.usage.completion
        self._pacer.answered(used - guess if used else 0.0, waited=waited)
        return reply


def _guessed_tokens(request: ChatRequest) -> float:
    """Tokens of a request's prompt: about one for four bytes of it."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    plain = [{"role": one["role"], "content": one["content"]} for one in request.messages]
    return len(encode([plain, tools])) / 4
