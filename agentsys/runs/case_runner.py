"""`CaseRunner`: what an executor hands cases to; `Workers`: how many of them ask models at the same time."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeVar

from agentsys.models.budget import Meter
from agentsys.records.schema import CaseRecord
from agentsys.runs.case_outcome import CaseEnd
from agentsys.runs.cell import Job
from agentsys.runs.claims import Claims
from agentsys.runs.store import Store

_Made = TypeVar("_Made")
_MOST_THREADS = 10_000
"""Most threads, those that wait for a worker included; they are made as they are needed."""


@dataclass(eq=False)
class Turn:
    """A place in the queue for a worker. Several tasks may share one."""

    ahead: bool = False
    """True: it waits until nobody else does, as its result may be thrown away."""


class Workers:
    """The workers of a run: at most `number` tasks ask models at the same time. Thread-safe.

    Args:
        number: Number of workers.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: dict[int, Turn] = {}
        self._numbers = count()
        self._changed = threading.Condition()
        self.threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="case")

    @property
    def idle(self) -> int:
        """Number of workers that nobody waits for."""
        with self._changed:
            return self._free - len(self._waiting)

    @contextmanager
    def hold(self, place: int | None = None) -> Iterator[None]:
        """Wait for a worker, by default at the end of the queue, and hold it inside the block."""
        with self._changed:
            place = self.enqueue() if place is None else place
            self._changed.wait_for(lambda: self._free > 0 and self._find_next() == place)
            del self._waiting[place]
            self._free -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    def enqueue(self, turn: Turn | None = None) -> int:
        """Take a place in the queue, which has to be used with `hold`."""
        with self._changed:
            place = next(self._numbers)
            self._waiting[place] = turn or Turn()
            return place

    def promote(self, turn: Turn) -> None:
        """Let those of a turn wait no longer than others."""
        with self._changed:
            turn.ahead = False
            self._changed.notify_all()

    def start(self, task: Callable[[], _Made]) -> Future[_Made]:
        """Start a task in a thread that holds no worker."""
        # An empty context, so that no context variables (loggers, tracers) pass from one case to another.
        return self.threads.submit(contextvars.Context().run, task)

    def _find_next(self) -> int:
        return min(self._waiting, key=lambda place: (self._waiting[place].ahead, place))


@dataclass(frozen=True)
class RunContext:
    """State that runners share with their run."""

    store: Store
    claims: Claims
    workers: Workers
    report_attempt: Callable[[CaseRecord], None] = lambda record: None
    """Called with every attempt of a search that was stored, from any thread."""
    is_stopping: Callable[[], bool] = lambda: False
    """Returns True if the run is ending."""
    meter: Meter | None = None
    """None: the run has no budget."""


class CaseRunner(Protocol):
    """Runs cases. Thread-safe."""

    def is_ready(self, job: Job) -> bool:
        """False while a case waits for something; then it takes no worker."""

    def run(self, job: Job) -> CaseEnd | None:
        """Run a case; None: it has to wait after all, or the run is ending.

        Raises:
            StoreError: If the log folder cannot be written.
            RunBudgetReached: If the run's budget is used up.
        """

    @property
    def summary(self) -> str:
        """One line about the run, for its end; `""` if there is nothing to say."""
