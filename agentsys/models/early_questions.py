"""Questions ahead of their turn: a model is asked early, so that its reply is there when it is needed.

The code that asks does not change. A question whose turn has come takes the reply of an equal one that was asked
ahead. A case's record and budget see a question in its turn only, so they are those of a run that asks one question
after the other; the run's ledger and budget have every request, also one whose reply nobody took.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ModelWrapper

MAX_SIDE_BY_SIDE = 20
"""Most questions of one case that are under way at the same time."""
_Result = TypeVar("_Result")


@runtime_checkable
class SideBySideModel(Protocol):
    """A model that records what it is asked, and can be asked without a record."""

    @property
    def unrecorded(self) -> ChatModel | None:
        """The model without the record; None if it has to be asked one question after the other."""


@dataclass
class EarlyQuestions:
    """The questions that were asked ahead in one block of code, and nobody has taken yet."""

    model: ChatModel
    pool: ThreadPoolExecutor
    _pending: list[tuple[ChatRequest, Future[ChatReply]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, request: ChatRequest) -> None:
        """Ask now, unless an equal question is under way: two equal ones may have two replies, in their order."""
        with self._lock:
            if all(request != asked for asked, _ in self._pending):
                self._pending.append((request, self.start(self.model.complete, request)))

    def start(self, work: Callable[..., _Result], *args: object) -> Future[_Result]:
        """Begin any other work beside the case's own thread, in a copy of its context."""
        return self.pool.submit(copy_context().run, work, *args)

    def take(self, request: ChatRequest) -> Future[ChatReply] | None:
        """Take the reply to an equal question out; None if there is none."""
        with self._lock:
            equal = (index for index, (asked, _) in enumerate(self._pending) if asked == request)
            index = next(equal, None)
            return None if index is None else self._pending.pop(index)[1]


_CURRENT: ContextVar[EarlyQuestions | None] = ContextVar("agentsys_early_questions", default=None)


@contextmanager
def questions_ahead(model: ChatModel) -> Iterator[EarlyQuestions | None]:
    """Allow questions to a model ahead of their turn inside the block; None: this model has to be asked in turn.

    At its end the block waits for replies that nobody took: they are paid for, and booked before the case ends.
    """
    while isinstance(model, ModelWrapper) and not isinstance(model, SideBySideModel):
        model = model.model
    unrecorded = model.unrecorded if isinstance(model, SideBySideModel) else None
    if unrecorded is None:
        yield None
        return
    pool = ThreadPoolExecutor(MAX_SIDE_BY_SIDE, "early-question")
    early = EarlyQuestions(unrecorded, pool)
    token = _CURRENT.set(early)
    try:
        yield early
    finally:
        _CURRENT.reset(token)
        pool.shutdown(cancel_futures=True)


def answer_in_turn(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a question whose turn has come, with the reply to an equal one asked ahead where there is one.

    Raises:
        ModelError: If the model raised it, now or when it was asked ahead.
    """
    early = _CURRENT.get()
    reply = early.take(request) if early is not None and early.model is model else None
    return model.complete(request) if reply is None else reply.result()
