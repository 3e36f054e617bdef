"""Executors turn jobs into records: on threads of this process, or on the nodes of a Ray cluster (`ray_nodes`).

One loop, `run_loop`, drives either. A finished case is stored before anything else happens.
"""

from __future__ import annotations

import contextvars
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from types import FrameType
from typing import Protocol, TypeVar

from agentsys.errors import StopRequested
from agentsys.models.budget import Meter, RunBudgetReached
from agentsys.records.schema import CaseRecord
from agentsys.runs.build_record import build_case_end, build_lost_case
from agentsys.runs.case_outcome import CaseEnd
from agentsys.runs.cell import Job
from agentsys.runs.claims import Claims
from agentsys.runs.run_case import run_case
from agentsys.runs.run_totals import Listener, RunOutcome, RunTally
from agentsys.runs.store import Store, StoreError

_Made = TypeVar("_Made")
_MOST_THREADS = 10_000
"""Most threads, those that wait for a worker included; they are made as they are needed."""
_RETRY_S = 0.5
LOOK_EVERY_S = 1.0
"""Seconds that the loop waits for an ended case before it looks at everything else."""


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
            first = partial(min, self._waiting, key=lambda number: (self._waiting[number].ahead, number))
            self._changed.wait_for(lambda: self._free > 0 and first() == place)
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


_STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Windows has no SIGHUP."""


@contextmanager
def defer_signals() -> Iterator[Callable[[], None]]:
    """Defer signals that end the run until the yielded function is called.

    That function runs the deferred handlers, so it may raise. Undeferred, a signal could interrupt anywhere, even
    between the end of a case and the line that counts it. A second Ctrl-C acts at once, as the function may never be
    called again. Outside the main thread, which alone gets signals, nothing is deferred.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers = {
        int(number): handler for number in _STOP_SIGNALS if callable(handler := signal.getsignal(number))
    }
    waiting = deque[int]()

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and signal.SIGINT in waiting:
            handlers[number](number, frame)
        waiting.append(number)

    def heed() -> None:
        while waiting:
            number = waiting.popleft()
            handlers[number](number, None)

    for number in handlers:
        signal.signal(number, note)
    try:
        yield heed
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class PlainRunner:
    """Runs cases as they are."""

    context: RunContext
    summary: str = ""
    """Nothing to say at the end of the run."""

    def is_ready(self, job: Job) -> bool:
        """Return True: a case waits for nothing."""
        return True

    def run(self, job: Job) -> CaseEnd | None:
        """Run a case."""
        with self.context.workers.hold():
            return build_case_end(run_case(job))


class Executor(Protocol):
    """Runs the cases of a run; `run_loop` drives it."""

    @property
    def running(self) -> int:
        """Number of cases under way."""

    def start(self) -> bool:
        """Start the cases that can be started now; return False once none is under way and none waits.

        Raises:
            StoreError: If the log folder cannot be written.
        """

    def collect(self) -> Iterator[tuple[Job, CaseEnd]]:
        """Wait for `LOOK_EVERY_S` at most, and yield the cases that were stored meanwhile.

        Raises:
            StoreError: If the log folder cannot be written.
            RunBudgetReached: If the run's budget is used up.
        """

    def interrupt(self) -> None:
        """Start no further case, for the run was asked to end; `RunTally` has been told. Called once."""


def run_loop(executor: Executor, tally: RunTally) -> None:
    """Start and collect cases until none is left. A signal that ends the run is handled between two steps."""
    with defer_signals() as heed_signals:
        while True:
            try:
                heed_signals()
                if not executor.start():
                    return
                for job, end in executor.collect():
                    tally.book(job, end, executor.running)
                tally.listener.on_tick()
            except KeyboardInterrupt as asked:
                number = asked.number if isinstance(asked, StopRequested) else signal.SIGINT
                first = not tally.interrupted
                tally.interrupt(number, executor.running)
                if first:  # For a node, a second interrupt would be a second Ctrl-C.
                    executor.interrupt()
            except StoreError as error:
                tally.stop(str(error), executor.running)
            except RunBudgetReached:
                tally.end_by_budget(executor.running)


def run_on_threads(
    jobs: Sequence[Job],
    *,
    workers: int,
    store: Store,
    claims: Claims,
    listener: Listener,
    meter: Meter | None,
    make_runner: Callable[[RunContext], CaseRunner] = PlainRunner,
) -> RunOutcome:
    """Run every job and store its record.

    A job that another process has claimed is waited for, and taken over if that process dies.

    A first KeyboardInterrupt stops starting cases and waits for those under way; a second one is raised, unless it
    is a `StopRequested`. An error that every further case would meet, or an exhausted budget (`meter` None: no
    budget), stops the run the same way; an error that every further case of its cell would meet ends that cell. The
    listener is called for each record, in the calling thread.
    """
    tally = RunTally(jobs, listener, meter)
    executor = ThreadExecutor(tally, store, claims, workers, make_runner)
    try:
        run_loop(executor, tally)
    except BaseException:
        # Cases under way are not waited for after a second Ctrl-C.
        executor.workers.threads.shutdown(wait=False, cancel_futures=True)
        raise
    executor.workers.threads.shutdown()
    return replace(tally.outcome, summary=executor.runner.summary)


class ThreadExecutor:
    """Runs cases on threads of this process.

    Args:
        tally: Says which case is next.
        store: Where records go.
        claims: This run's claims on cases that other processes may run as well.
        workers: Number of cases under way at the same time.
        make_runner: Makes what runs a case.
    """

    def __init__(
        self,
        tally: RunTally,
        store: Store,
        claims: Claims,
        workers: int,
        make_runner: Callable[[RunContext], CaseRunner],
    ) -> None:
        self._tally, self._store, self._claims = tally, store, claims
        self._number, self.workers = workers, Workers(workers)
        self._jobs: dict[Future[CaseEnd | None], Job] = {}
        """The cases under way."""
        self._attempts: queue.SimpleQueue[CaseRecord] = queue.SimpleQueue()
        self._waiting: list[Job] = []
        """Cases that are not ready to be run."""
        self.runner = make_runner(
            RunContext(store, claims, self.workers, self._attempts.put, lambda: tally.is_stopped, tally.meter)
        )

    @property
    def running(self) -> int:
        """Number of cases under way."""
        return len(self._jobs)

    def start(self) -> bool:
        """Start cases, but no more than there are workers, so that stopping early is quick."""
        tally = self._tally
        tally.retry_postponed()
        ready = [job for job in self._waiting if self.runner.is_ready(job)]
        if ready:
            self._waiting = [job for job in self._waiting if job not in ready]
            tally.resume(ready)
        while len(self._jobs) < self._number:
            job = tally.pick_next_job(self._jobs.values())
            if job is None:
                break
            if not self.runner.is_ready(job):
                self._waiting.append(job)
                continue
            key = job.case.key
            taken = self._claims.take(key)
            # Checked while holding the claim: no other process can store it from here on.
            if self._store.has_changed_since_planned(job.case):
                self._claims.release(key)
                tally.count_stored_elsewhere(job)
            elif not taken:
                tally.postpone(job)
            else:
                task = partial(run_and_store, job, self.runner, self._store, self._claims)
                self._jobs[self.workers.start(task)] = job
        return bool(self._jobs) or (not tally.is_stopped and (bool(self._waiting) or tally.has_waiting))

    def collect(self) -> Iterator[tuple[Job, CaseEnd]]:
        """Yield the cases that were stored; one that has to wait after all is tried again later."""
        if not self._jobs:
            time.sleep(_RETRY_S)  # All remaining cases are under way in other processes.
        ended, _ = wait(self._jobs, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        while not self._attempts.empty():
            self._tally.listener.on_attempt_stored(self._attempts.get())
        for future in ended:
            job = self._jobs.pop(future)
            if (end := future.result()) is not None:
                yield job, end
            else:
                self._waiting.append(job)

    def interrupt(self) -> None:
        """Do nothing: the cases under way are finished."""


def run_and_store(job: Job, runner: CaseRunner, store: Store, claims: Claims) -> CaseEnd | None:
    """Run a claimed case, store its record and release the claim.

    Returns:
        The case's result; None if it has to wait, or the run is ending.

    Raises:
        StoreError: If the log folder cannot be written.
        RunBudgetReached: If the run's budget is used up.
    """
    try:
        end = runner.run(job)
        if end is not None:
            store.write(end.record, end.agentdojo)
    except (StoreError, RunBudgetReached):
        raise
    except BaseException as error:  # noqa: BLE001 - one broken case must not cost the others; Ctrl-C never comes here
        end = build_lost_case(job, error)
        store.write(end.record, end.agentdojo)
    finally:
        claims.release(job.case.key)
    return end
