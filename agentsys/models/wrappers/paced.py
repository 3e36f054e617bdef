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
from agentsys.models.providers.wire_text import encode
from agentsys.models.trace import current_tracer
from agentsys.models.wrappers.pace import (
    LOOKED_AT,
    Pace,
    RatePolicy,
    answered,
    closed,
    is_stray,
    may_send,
    refused,
    sent,
)

try:
    import fcntl
except ImportError:  # Windows: then each process keeps to the rate by itself
    fcntl = None  # type: ignore[assignment]


_LOOK_EVERY_S = 0.1
"""Seconds between two looks whether another process was refused; each gives up the interpreter's lock."""


class Pacer:
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
        self._pace = Pace()
        self._lock, self._queue = threading.Lock(), _InTurns()
        self._lately = deque[float](maxlen=256)
        self._refusals = deque[bool](maxlen=LOOKED_AT)
        self._needed = self.policy != RatePolicy()
        self._look_at = 0.0

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
        # Not looked up once more: a request that went out before anybody was refused is in no account.
        if self._needed:
            now = self._clock()
            self._keep(lambda pace: answered(pace, self.policy, now, more_tokens, waited=waited))

    def failed(self, error: ModelError) -> None:
        """No reply came; the server may have said that it was asked too often, or when to ask again."""
        now = self._clock()
        asked_s = error.retry_after_s if error.kind.consequence is Consequence.RETRY else None
        if asked_s is not None and asked_s <= self._patience_s:
            until = now + asked_s
            self._keep(lambda pace: closed(pace, until))
        if error.kind is not ErrorKind.RATE_LIMITED:
            return
        with self._lock:
            seen = max(1, sum(now - moment <= 1.0 for moment in self._lately))
            self._refusals.append(True)
            stray = is_stray(self._refusals)
        if not stray:
            self._keep(lambda pace: refused(pace, now, float(seen)))

    def _keep(self, changed: Callable[[Pace], Pace]) -> None:
        self._needed = True
        with self._shared() as keep:
            keep(changed(self._pace))

    @property
    def _under_control(self) -> bool:
        """Whether there is anything to heed; until somebody was refused or held back there is not."""
        if not self._needed and self._path is not None and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_EVERY_S
            self._needed = self._path.exists()
        return self._needed

    def _try(self, tokens: float) -> float:
        """Take the next place if it is due; else the seconds until it is."""
        with self._shared() as keep:
            now = self._clock()
            pause = may_send(self._pace, now)
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
            ModelError: If the wrapped model raises it; a refusal for the rate slows down all who ask, and a
                Retry-After holds them back.
        """
        guess = 0.0 if self._pacer.policy.tokens is None else guessed_tokens(request)
        waited = self._pacer.wait(guess)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            self._pacer.failed(error)
            raise
        used = reply.usage.prompt + reply.usage.completion
        self._pacer.answered(used - guess if used else 0.0, waited=waited)
        return reply


def guessed_tokens(request: ChatRequest) -> float:
    """Tokens of a request's prompt: about one for four bytes of it."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    plain = [{"role": one["role"], "content": one["content"]} for one in request.messages]
    return len(encode([plain, tools])) / 4
