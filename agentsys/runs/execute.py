"""Jobs -> records, on a pool of threads; what is finished is on disk before anything else happens."""

from __future__ import annotations

import contextvars
import queue
import signal
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from agentsys.attacks.attacker.reply import FAULTS
from agentsys.errors import StopRequested
from agentsys.models.budget import Meter, RunBudgetReached
from agentsys.parsing_threads import parse_in_turns
from agentsys.records.schema import CaseRecord
from agentsys.runs.cell import Cell
from agentsys.runs.claims import Claims
from agentsys.runs.finish_case import finish_case, lost_case
from agentsys.runs.plan import Job
from agentsys.runs.planning.jobs import JobLine
from agentsys.runs.run_case import SearchStopped
from agentsys.runs.search.searches import CellSearches
from agentsys.runs.store import Store, StoreError
from agentsys.runs.totals import RunSpending

_LOOK_AGAIN_S = 0.5
_TRACEBACKS = 3
"""Most tracebacks that an outcome holds; each stands in its case's record."""


class Listener(Protocol):
    """Is told how a run goes (the progress display, for one). Called from the calling thread only."""

    def finished(self, record: CaseRecord) -> None:
        """A case was stored."""

    def attempted(self, record: CaseRecord) -> None:
        """An attempt of a search was stored."""

    def joined(self, processes: Sequence[int]) -> None:
        """Other processes (their numbers) are at work in the same log folder."""

    def elsewhere(self) -> None:
        """Another process stored a case of this plan."""

    def tick(self) -> None:
        """Time passed; nothing new. Called about once a second."""

    def stopping(self, why: str, running: int) -> None:
        """No new case is started; `running` ones are being finished."""


@dataclass(frozen=True)
class EndedCell:
    """A cell every further case of which would have failed alike."""

    labels: tuple[str, str, str]
    """Of model, defense and attack."""
    why: str
    left: int
    """Cases that were not started."""


@dataclass(frozen=True)
class Trouble:
    """One kind of error of a run."""

    kind: str
    cases: int
    message: str
    """Of the first of them."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    finished: int
    """Cases stored, errored ones included."""
    errors: int
    """Cases stored as errors."""
    fatal: str | None = None
    """Why the run stopped early (a bad key, a full disk); None otherwise."""
    interrupted: bool = False
    """Whether the user, or the system, stopped it."""
    signal: int = signal.SIGINT
    """By which signal, if so."""
    elsewhere: int = 0
    """Cases of the plan that other processes stored meanwhile."""
    tracebacks: tuple[str, ...] = ()
    """Of code that broke: one for each error kind and message, the first few."""
    budget: str | None = None
    """Which budget ended it; None: none did."""
    ended_cells: tuple[EndedCell, ...] = ()
    """The cells that were given up."""
    troubles: tuple[Trouble, ...] = ()
    """What errors there were, the most frequent first."""
    no_text: int = 0
    """Those of `errors` whose attack's search had no attacker to speak of."""


@dataclass(frozen=True)
class _Done:
    record: CaseRecord
    fatal: str | None
    cell_ended: str | None
    error: str | None


def execute(
    jobs: Sequence[Job],
    *,
    workers: int,
    store: Store,
    claims: Claims,
    listener: Listener,
    meter: Meter | None = None,
) -> RunOutcome:
    """Run every job and store its record; a job that another process has claimed is left to it.

    Such a job is waited for, and taken over should its process die: at the end all are done.

    A first KeyboardInterrupt stops starting cases and waits for those under way; a second one is
    let through, unless it is a `StopRequested`. An error that every further case would meet stops the
    run the same way, and so does a budget; one that every further case of its cell would meet gives up
    that cell.

    Args:
        jobs: The cases to run.
        workers: Cases under way at once.
        store: Where records go.
        claims: Of this run, in the same folder.
        listener: Is told of each record, in the calling thread.
        meter: What the run spends and may spend; None: it has no budget.
    """
    state = _State(jobs, store, claims, listener, RunSpending(meter or Meter()))
    # Not a `with` block: leaving one waits for cases under way, and who presses Ctrl-C twice does not.
    parse_in_turns()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="case")
    try:
        state.fill(pool, workers)
        while state.running or state.waiting:
            try:
                state.collect(timeout_s=1.0)
                state.fill(pool, workers)
            except StopRequested as asked:
                state.interrupt(asked.number)
            except KeyboardInterrupt:
                state.interrupt(signal.SIGINT)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return state.outcome


class _State:
    """The run under way: what is running, what came of it, whether to go on."""

    def __init__(
        self, jobs: Sequence[Job], store: Store, claims: Claims, listener: Listener, spending: RunSpending
    ) -> None:
        self.todo, self.others_todo = JobLine(jobs), list[Job]()
        self.store, self.claims, self.listener = store, claims, listener
        self.running: dict[Future[_Done | None], Job] = {}
        self.spending = spending
        self.budget: str | None = None
        self.given_up: dict[int, tuple[Cell, str]] = {}
        self.left: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.attempts: queue.SimpleQueue[CaseRecord] = queue.SimpleQueue()
        self.searches = CellSearches(store, self.attempts.put, lambda: self.stopped, claims)
        self.finished = self.errors = self.elsewhere = self.no_text = 0
        self.fatal: str | None = None
        self.interrupted = False
        self.signal: int = signal.SIGINT
        self.tracebacks: dict[tuple[str | None, str], str] = {}

    def fill(self, pool: ThreadPoolExecutor, workers: int) -> None:
        # Cases are handed over as places become free, so that stopping early is quick and loses nothing.
        if not self.todo:
            self.todo, self.others_todo = JobLine(self.others_todo), []
        while not self.stopped and len(self.running) < workers and self._next_fits():
            job = self.todo.pop()
            try:
                if not self._ours(job):
                    continue
            except StoreError as error:
                self._stop(str(error))
                return
            # An empty context: nothing of this thread's (loggers, tracers) reaches the case, or back.
            run = contextvars.Context().run
            future = pool.submit(run, _run_and_store, job, self.store, self.searches, self.claims)
            self.running[future] = job

    def _next_fits(self) -> bool:
        """Whether there is a next case and room for it; cases of cells that were given up are passed over."""
        while self.todo and id(self.todo.first.cell) in self.given_up:
            self.left[id(self.todo.pop().cell)] += 1
        if not self.todo:
            return False
        fits = self.spending.fits(self.todo.first, self.running.values())
        if not fits and not self.running:
            self._end_by_budget()
        return fits

    def _end_by_budget(self) -> None:
        if self.budget is None:
            self.budget = self.spending.meter.reached
            self.listener.stopping(self.budget, len(self.running))

    def _ours(self, job: Job) -> bool:
        """Whether the job is claimed for this run, to be run now."""
        taken = self.claims.take(job.case.key)
        # Looked at under the claim: nobody stores it from here on.
        if self.store.renewed(job.case):
            self.claims.release(job.case.key)
            self.elsewhere += 1
            self.listener.elsewhere()
            return False
        if not taken:
            self.others_todo.append(job)
        return taken

    @property
    def waiting(self) -> bool:
        """Whether there is anything that this run still wants to see done."""
        return bool(self.todo or self.others_todo) and not self.stopped

    @property
    def outcome(self) -> RunOutcome:
        return RunOutcome(
            self.finished,
            self.errors,
            self.fatal,
            self.interrupted,
            self.signal,
            self.elsewhere,
            tuple(self.tracebacks.values()),
            self.budget,
            tuple(EndedCell(_labels(c), why, self.left[key]) for key, (c, why) in self.given_up.items()),
            tuple(Trouble(kind, n, self.messages[kind]) for kind, n in self.kinds.most_common()),
            self.no_text,
        )

    @property
    def stopped(self) -> bool:
        return self.interrupted or self.fatal is not None or self.budget is not None

    def collect(self, timeout_s: float) -> None:
        if not self.running:
            time.sleep(min(timeout_s, _LOOK_AGAIN_S))  # all that is left is under way in other processes
        done, _ = wait(self.running, timeout=timeout_s, return_when=FIRST_COMPLETED)
        while not self.attempts.empty():
            self.listener.attempted(self.attempts.get())
        for future in done:
            self._book(future, self.running.pop(future))
        self.listener.tick()

    def _book(self, future: Future[_Done | None], job: Job) -> None:
        try:
            result = future.result()
        except StoreError as error:
            self._stop(str(error))
            return
        except RunBudgetReached:
            self._end_by_budget()
            return
        if result is None:
            return
        self._note(job, result)
        self.finished += 1
        self.errors += result.record.status == "error"
        if result.record.traceback and len(self.tracebacks) < _TRACEBACKS:
            self.tracebacks.setdefault(_place(result.record), result.record.traceback)
        self.no_text += result.record.error_kind in FAULTS
        self.listener.finished(result.record)
        if result.fatal is not None:
            self._stop(result.fatal)

    def _note(self, job: Job, result: _Done) -> None:
        self.spending.add(job, result.record)
        if result.record.error_kind is not None:
            self.kinds[result.record.error_kind] += 1
            self.messages.setdefault(result.record.error_kind, result.error or "")
        if result.cell_ended is not None:
            self.given_up.setdefault(id(job.cell), (job.cell, result.cell_ended))

    def _stop(self, why: str) -> None:
        if self.fatal is None:
            self.fatal = why
            self.listener.stopping(why, len(self.running))

    def interrupt(self, number: int) -> None:
        if self.interrupted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.interrupted:  # a batch system sends its signal more than once
            self.interrupted, self.signal = True, number
            self.listener.stopping("interrupted", len(self.running))


def _labels(cell: Cell) -> tuple[str, str, str]:
    labels = cell.settings.labels
    return labels["model"], labels["defense"], labels["attack"]


def _place(record: CaseRecord) -> tuple[str | None, str]:
    """What tells one bug from another: the error kind, and the line of code that raised."""
    lines = [line for line in (record.traceback or "").splitlines() if line.lstrip().startswith("File ")]
    return record.error_kind, lines[-1] if lines else ""


def _run_and_store(job: Job, store: Store, searches: CellSearches, claims: Claims) -> _Done | None:
    """None: the run is ending, and the case's search stopped before it was done."""
    try:
        with nullcontext() if job.cell.books is None else job.cell.books.crew.at_work():
            done = finish_case(job, store, searches)
        store.write(done.record, done.agentdojo)
    except SearchStopped:
        return None
    except StoreError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one odd case must not cost the others
        done = lost_case(job, error)
        store.write(done.record, done.agentdojo)
    finally:
        claims.release(job.case.key)
    return _Done(done.record, done.fatal, done.cell_ended, done.agentdojo.get("error"))
