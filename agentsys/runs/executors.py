"""Executors turn jobs into records: on threads of this process, or on each node of a Ray cluster.

A finished case is stored before anything else happens. Ray nodes run the same command on a shared log folder: they
share cases, rates and the budget as several commands on one folder do, and this process only watches what they store.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from agentsys.errors import ConfigError, StopRequested
from agentsys.models.budget import Meter, RunBudgetReached
from agentsys.records.schema import CaseRecord
from agentsys.runs.build_record import build_case_end, build_lost_case
from agentsys.runs.case_outcome import CaseEnd
from agentsys.runs.case_runner import CaseRunner, RunContext, Workers
from agentsys.runs.cell import CellLabels, Job
from agentsys.runs.claims import Claims
from agentsys.runs.run_case import run_case
from agentsys.runs.run_totals import AbandonedCell, Listener, RunOutcome, RunTally
from agentsys.runs.settings import ExecutorSettings
from agentsys.runs.store import Store, StoreError

_RETRY_S = 0.5
_LOOK_EVERY_S = 1.0

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
        if waiting and number == signal.SIGINT:
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


class PlainRunner:
    """Runs cases as they are."""

    def __init__(self, context: RunContext) -> None:
        self._workers = context.workers

    @property
    def summary(self) -> str:
        """Nothing."""
        return ""

    def is_ready(self, job: Job) -> bool:
        """Return True: a case waits for nothing."""
        return True

    def run(self, job: Job) -> CaseEnd | None:
        """Run a case."""
        with self._workers.hold():
            return build_case_end(run_case(job))


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
    state = _ThreadRun(RunTally(jobs, listener, meter), store, claims, workers, make_runner)
    try:
        run_steps(state.step, lambda number: state.tally.interrupt(number, len(state.running)))
    except BaseException:
        # Cases under way are not waited for after a second Ctrl-C.
        state.workers.threads.shutdown(wait=False, cancel_futures=True)
        raise
    state.workers.threads.shutdown()
    return replace(state.tally.outcome, summary=state.runner.summary)


def run_steps(step: Callable[[], bool], interrupt: Callable[[int], None]) -> None:
    """Take steps until one returns False; a signal that ends the run is handled between two, by its number."""
    with defer_signals() as heed_signals:
        while True:
            try:
                heed_signals()
                if not step():
                    return
            except StopRequested as asked:
                interrupt(asked.number)
            except KeyboardInterrupt:
                interrupt(signal.SIGINT)


class _ThreadRun:
    def __init__(
        self,
        tally: RunTally,
        store: Store,
        claims: Claims,
        workers: int,
        make_runner: Callable[[RunContext], CaseRunner],
    ) -> None:
        self.tally, self.store, self.claims = tally, store, claims
        self.number, self.workers = workers, Workers(workers)
        self.running: dict[Future[CaseEnd | None], Job] = {}
        self.attempts: queue.SimpleQueue[CaseRecord] = queue.SimpleQueue()
        self.runner = make_runner(
            RunContext(store, claims, self.workers, self.attempts.put, lambda: tally.is_stopped, tally.meter)
        )
        self.waiting: list[Job] = []
        """Cases that are not ready to be run."""

    def step(self) -> bool:
        self.start_cases()
        if not (self.running or self.tally.has_waiting or (self.waiting and not self.tally.is_stopped)):
            return False
        self.collect_ended()
        return True

    def start_cases(self) -> None:
        # A case is submitted only when a worker is free, so that stopping early is quick.
        self.tally.retry_postponed()
        ready = [job for job in self.waiting if self.runner.is_ready(job)]
        if ready:
            self.waiting = [job for job in self.waiting if job not in ready]
            self.tally.resume(ready)
        while len(self.running) < self.number:
            job = self.tally.pick_next_job(self.running.values())
            if job is None:
                return
            if not self.runner.is_ready(job):
                self.waiting.append(job)
                continue
            key = job.case.key
            try:
                taken = self.claims.take(key)
            except StoreError as error:
                self.tally.stop(str(error), len(self.running))
                return
            # Checked while holding the claim: no other process can store it from here on.
            if self.store.has_changed_since_planned(job.case):
                self.claims.release(key)
                self.tally.count_stored_elsewhere(job)
                continue
            if not taken:
                self.tally.postpone(job)
                continue
            future = self.workers.start(partial(run_and_store, job, self.runner, self.store, self.claims))
            self.running[future] = job

    def collect_ended(self) -> None:
        if not self.running:
            time.sleep(_RETRY_S)  # All remaining cases are under way in other processes.
        done, _ = wait(self.running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        while not self.attempts.empty():
            self.tally.listener.on_attempt_stored(self.attempts.get())
        for future in done:
            job = self.running.pop(future)
            try:
                if (end := future.result()) is not None:
                    self.tally.book(job, end, len(self.running))
                else:
                    self.waiting.append(job)
            except StoreError as error:
                self.tally.stop(str(error), len(self.running))
            except RunBudgetReached:
                self.tally.end_by_budget(len(self.running))
        self.tally.listener.on_tick()


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
    except StoreError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one broken case must not cost the others
        end = build_lost_case(job, error)
        store.write(end.record, end.agentdojo)
    finally:
        claims.release(job.case.key)
    return end


def run_on_nodes(
    work: Callable[[], RunOutcome],
    jobs: Sequence[Job],
    executor: ExecutorSettings,
    *,
    store: Store,
    listener: Listener,
    meter: Meter | None,
) -> RunOutcome:
    """Run every job on the nodes of a Ray cluster; otherwise as `run_on_threads` does.

    Raises:
        ConfigError: If there is no cluster at the address.
    """
    with _join_cluster(executor.address) as ray:
        tally = RunTally(jobs, listener, meter)
        return _NodeWatch(ray, work, jobs, tally, store, executor.workers).wait_for_nodes()


@contextmanager
def _join_cluster(address: str | None) -> Iterator[Any]:
    """Join a Ray cluster inside the block; a cluster that this process joined before stays joined."""
    import ray

    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            raise ConfigError(f"executor.address={address}: no Ray cluster is there ({error}).") from None
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


class _NodeWatch:
    def __init__(
        self,
        ray: Any,
        work: Callable[[], RunOutcome],
        jobs: Sequence[Job],
        tally: RunTally,
        store: Store,
        workers: int,
    ) -> None:
        self._ray, self._work, self._jobs, self._tally = ray, work, jobs, tally
        self._store, self._workers = store, workers
        self._stored = bytearray(len(jobs))
        self._look_at = 0.0
        self._ended: list[RunOutcome] = []
        self._failures: list[str] = []
        self._waiting = {self._start_task(node): node for node in ray.nodes() if node["Alive"]}

    def wait_for_nodes(self) -> RunOutcome:
        """Watch until all nodes have ended."""
        try:
            run_steps(self._poll, self._interrupt)
        finally:
            for task in self._waiting:
                self._ray.cancel(task, force=True)
        self._book_stored()
        if not all(self._stored):
            self._explain_missing()
        cells: dict[CellLabels, AbandonedCell] = {}
        for cell in (cell for outcome in self._ended for cell in outcome.ended_cells):
            cells.setdefault(cell.labels, cell)
        return replace(self._tally.outcome, ended_cells=tuple(cells.values()))

    def _start_task(self, node: dict[str, Any]) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        # num_cpus=0: the work mostly waits for models. max_calls=1: a fresh process, not changed by an earlier run.
        remote = self._ray.remote(num_cpus=0, max_retries=0, max_calls=1, scheduling_strategy=pinned)
        return remote(_run_in_folder).remote(Path.cwd(), list(filter(None, sys.path)), self._work)

    def _poll(self) -> bool:
        if not self._waiting:
            return False
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=_LOOK_EVERY_S)
        for task in done:
            self._collect_task(task, self._waiting.pop(task)["NodeManagerAddress"])
        if time.monotonic() >= self._look_at:
            began = time.monotonic()
            self._book_stored()
            # This stats a file per case, which takes a while for a large plan, so it is done rarely.
            self._look_at = time.monotonic() + max(_LOOK_EVERY_S, 20 * (time.monotonic() - began))
        self._tally.listener.on_tick()
        return True

    def _collect_task(self, task: Any, node: str) -> None:
        try:
            self._ended.append(self._ray.get(task))
        except self._ray.exceptions.RayError as error:  # The task raised, or its node was lost.
            last = str(getattr(error, "cause", None) or error).strip().splitlines()
            self._failures.append(f"Node {node}: {last[-1] if last else type(error).__name__}")

    def _book_stored(self) -> None:
        store = self._store
        for index, job in enumerate(self._jobs):
            if self._stored[index] or not store.has_changed_since_planned(job.case):
                continue
            if (stored := store.load_record(job.case)) is not None:
                self._stored[index] = True
                self._tally.book(job, CaseEnd(stored[0], {"error": stored[1]}), self._running)

    @property
    def _running(self) -> int:
        return min(self._workers * len(self._waiting), self._stored.count(0))

    def _interrupt(self, number: int) -> None:
        self._tally.interrupt(number, self._running)
        for task in self._waiting:
            self._ray.cancel(task)  # Raises KeyboardInterrupt there: cases under way are finished.

    def _explain_missing(self) -> None:
        if any(outcome.budget for outcome in self._ended):
            self._tally.end_by_budget(0)
        fatal = [outcome.fatal for outcome in self._ended if outcome.fatal]
        given_up = any(outcome.ended_cells for outcome in self._ended)
        if fatal or self._failures:
            self._tally.stop([*fatal, *self._failures][0], 0)
        elif not given_up and not self._tally.is_stopped:
            self._tally.stop(f"{self._stored.count(0)} cases were run by no node.", 0)


def _run_in_folder(here: Path, path: Sequence[str], work: Callable[[], RunOutcome]) -> RunOutcome:
    """Do the work in a Ray process, with the command's working directory and import path."""
    os.chdir(here)
    sys.path.extend(folder for folder in path if folder not in sys.path)
    warnings.filterwarnings("ignore", message="Model output was None")  # From AgentDojo; the records have it.
    return work()
