"""Jobs -> records, on a pool of threads; what is finished is on disk before anything else happens."""

from __future__ import annotations

import contextvars
import queue
import signal
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from agentsys.errors import StopRequested
from agentsys.models.budget import Meter, RunBudgetReached
from agentsys.records.schema import CaseRecord
from agentsys.runs.claims import Claims
from agentsys.runs.executors.outcome import Listener, RunOutcome
from agentsys.runs.executors.signals import defer_signals
from agentsys.runs.executors.tally import CaseEnd, RunTally
from agentsys.runs.finish_case import finish_case, build_lost_case
from agentsys.runs.plan import Job
from agentsys.runs.planning.run_order import RunOrder
from agentsys.runs.run_case import SearchStopped
from agentsys.runs.search.searches import RunSearches
from agentsys.runs.store import Store, StoreError

_RETRY_S = 0.5


def run_on_threads(
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
    state = _ThreadRun(RunTally(RunOrder(jobs, workers), listener, meter), store, claims)
    # Not a `with` block: leaving one waits for cases under way, and who presses Ctrl-C twice does not.
    pool = ThreadPoolExecutor(workers, thread_name_prefix="case")
    try:
        with defer_signals() as heed_signals:
            while True:
                try:
                    heed_signals()
                    state.start_cases(pool, workers)
                    if not (state.running or state.tally.has_waiting):
                        break
                    state.collect_ended(timeout_s=1.0)
                except StopRequested as asked:
                    state.tally.interrupt(asked.number, len(state.running))
                except KeyboardInterrupt:
                    state.tally.interrupt(signal.SIGINT, len(state.running))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return state.tally.outcome


class _ThreadRun:
    """The run under way: what is running in which thread."""

    def __init__(self, tally: RunTally, store: Store, claims: Claims) -> None:
        self.tally, self.store, self.claims = tally, store, claims
        self.running: dict[Future[CaseEnd | None], Job] = {}
        self.attempts: queue.SimpleQueue[CaseRecord] = queue.SimpleQueue()
        self.searches = RunSearches(store, self.attempts.put, lambda: tally.is_stopped, claims)

    def start_cases(self, pool: ThreadPoolExecutor, workers: int) -> None:
        # Cases are handed over as places become free, so that stopping early is quick and loses nothing.
        self.tally.retry_postponed()
        while len(self.running) < workers:
            job = self.tally.next_job(self.running.values())
            if job is None:
                return
            try:
                if not self._claim(job):
                    continue
            except StoreError as error:
                self.tally.stop(str(error), len(self.running))
                return
            # An empty context: nothing of this thread's (loggers, tracers) reaches the case, or back.
            run = contextvars.Context().run
            future = pool.submit(run, run_and_store, job, self.store, self.searches, self.claims)
            self.running[future] = job

    def _claim(self, job: Job) -> bool:
        """Whether the job is claimed for this run, to be run now."""
        taken = self.claims.take(job.case.key)
        # Looked at under the claim: nobody stores it from here on.
        if self.store.renewed(job.case):
            self.claims.release(job.case.key)
            self.tally.count_stored_elsewhere()
            return False
        if not taken:
            self.tally.postpone(job)
        return taken

    def collect_ended(self, timeout_s: float) -> None:
        if not self.running:
            time.sleep(min(timeout_s, _RETRY_S))  # all that is left is under way in other processes
        done, _ = wait(self.running, timeout=timeout_s, return_when=FIRST_COMPLETED)
        while not self.attempts.empty():
            self.tally.listener.attempted(self.attempts.get())
        for future in done:
            self._book_ended(future, self.running.pop(future))
        self.tally.listener.tick()

    def _book_ended(self, future: Future[CaseEnd | None], job: Job) -> None:
        try:
            end = future.result()
        except StoreError as error:
            self.tally.stop(str(error), len(self.running))
            return
        except RunBudgetReached:
            self.tally.end_by_budget(len(self.running))
            return
        if end is not None:
            self.tally.book(job, end, len(self.running))


def run_and_store(job: Job, store: Store, searches: RunSearches, claims: Claims) -> CaseEnd | None:
    """Run a case that was claimed, store its record and give the claim back.

    Returns:
        What came of it; None: the run is ending, and the case's search was not done.

    Raises:
        StoreError: If the log folder cannot be written.
        RunBudgetReached: If the run may spend no more.
    """
    try:
        done = finish_case(job, store, searches)
        store.write(done.record, done.agentdojo)
    except SearchStopped:
        return None
    except StoreError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one odd case must not cost the others
        done = build_lost_case(job, error)
        store.write(done.record, done.agentdojo)
    finally:
        claims.release(job.case.key)
    return CaseEnd(done.record, done.fatal, done.cell_ended, done.agentdojo.get("error"))
