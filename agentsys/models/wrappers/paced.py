"""`Paced`: sends requests no faster than a model's server takes them, in all processes of a run together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import Consequence, ErrorKind, ModelError
from agentsys.models.providers.wire_text import encode_for_wire
from agentsys.models.trace import current_tracer
from agentsys.models.wrappers.pace import (
    RECENT_REQUESTS,
    RateState,
    RatePolicy,
    after_reply,
    after_retry_after,
    are_stray_refusals,
    seconds_until_send,
    after_refusal,
    after_request,
)

try:
    import fcntl
except ImportError:  # Windows: then each process keeps to the rate by itself
    fcntl = None  # type: ignore[assignment]


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
        """
        if not self._is_limiting:
            self._note_sent()
            return False
        waited = False
        with self._queue.wait_turn():
            while pause := self._try_send(tokens):
                waited = True
                with _count_wait():
                    # Others may be refused meanwhile, or the rate grow: look again.
                    self._sleep(min(pause, 1.0))
        return waited

    def note_reply(self, more_tokens: float, *, waited: bool) -> None:
        """A reply came; see `answered`."""
        with self._lock:
            self._refusals.append(False)
        # Not looked up once more: a request that went out before anybody was refused is in no account.
        if self._has_limits:
            now = self._clock()
            self._change_state(lambda pace: after_reply(pace, self.policy, now, more_tokens, waited=waited))

    def note_failure(self, error: ModelError) -> None:
        """No reply came; the server may have said that it was asked too often, or when to ask again."""
        now = self._clock()
        asked_s = error.retry_after_s if error.kind.consequence is Consequence.RETRY else None
        if asked_s is not None and asked_s <= self._patience_s:
            until = now + asked_s
            self._change_state(lambda pace: after_retry_after(pace, until))
        if error.kind is not ErrorKind.RATE_LIMITED:
            return
        with self._lock:
            seen = max(1, sum(now - moment <= 1.0 for moment in self._sent_times))
            self._refusals.append(True)
            stray = are_stray_refusals(self._refusals)
        if not stray:
            self._change_state(lambda pace: after_refusal(pace, now, float(seen)))

    def _change_state(self, changed: Callable[[RateState], RateState]) -> None:
        self._has_limits = True
        with self._hold_state() as keep:
            keep(changed(self._state))

    @property
    def _is_limiting(self) -> bool:
        """Whether there is anything to heed; until somebody was refused or held back there is not."""
        if not self._has_limits and self._path is not None and self._clock() >= self._poll_at:
            self._poll_at = self._clock() + _POLL_EVERY_S
            self._has_limits = self._path.exists()
        return self._has_limits

    def _try_send(self, tokens: float) -> float:
        """Take the next place if it is due; else the seconds until it is."""
        with self._hold_state() as keep:
            now = self._clock()
            pause = seconds_until_send(self._state, now)
            if not pause:
                keep(after_request(self._state, self.policy, now, tokens))
        if not pause:
            self._note_sent()
        return pause

    def _note_sent(self) -> None:
        with self._lock:
            self._sent_times.append(self._clock())

    @contextmanager
    def _hold_state(self) -> Iterator[Callable[[RateState], None]]:
        """Hold the state against everybody, as it is now; what is given to the yielded function is kept."""
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
        kept = json.loads(os.pread(file, _FILE_BYTES, 0))
        return RateState(**{str(name): float(value) for name, value in kept.items() if value is not None})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@contextmanager
def _lock_file(path: Path | None) -> Iterator[int | None]:
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
    books = current_tracer().usage_log
    return contextlib.nullcontext() if books is None else books.meter.count_wait(retry=False)


class RateLimitedModel:
    """A model that is asked no faster than its rate allows.

    Stands next to the provider: a hit of the cache does not wait.
    """

    def __init__(self, model: ChatModel, pacer: RateLimiter) -> None:
        self.model = model
        self._pacer = pacer

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model once, when its turn has come.

        Raises:
            ModelError: If the wrapped model raises it; a refusal for the rate slows down all who ask, and a
                Retry-After holds them back.
        """
        guess = 0.0 if self._pacer.policy.tokens is None else guess_prompt_tokens(request)
        waited = self._pacer.wait_turn(guess)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            self._pacer.note_failure(error)
            raise
        used = reply.usage.prompt + reply.usage.completion
        self._pacer.note_reply(used - guess if used else 0.0, waited=waited)
        return reply


def guess_prompt_tokens(request: ChatRequest) -> float:
    """Tokens of a request's prompt: about one for four bytes of it."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    plain = [{"role": one["role"], "content": one["content"]} for one in request.messages]
    return len(encode_for_wire([plain, tools])) / 4
