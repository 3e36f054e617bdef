"""`run_by_workers`: hands cases to workers elsewhere, a few at a time, and hears what came of them.

Workers store records themselves; a driver only counts. Cases of a worker that ended come back, less those
that it had stored. As one of them may be the cause, each of them is run again with nothing beside it: which
one ends a second worker is known for certain, and becomes an error.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from agentsys.errors import StopRequested
from agentsys.models.budget import NOTHING_SPENT, Meter, MeterReading
from agentsys.runs.cell import Cell
from agentsys.runs.claims import Claims
from agentsys.runs.executors.messages import (
    AttemptMade,
    CannotGoOn,
    CaseTask,
    CaseTasks,
    CellToBuild,
    Drain,
    Ended,
    NotRun,
    Ready,
    SpentElsewhere,
    Told,
    WorkerSpent,
    briefly,
)
from agentsys.runs.executors.outcome import Listener, RunOutcome
from agentsys.runs.executors.signals import held_back
from agentsys.runs.executors.staff import Gone, Hand, Staff
from agentsys.runs.executors.stored_case import CaseEnd
from agentsys.runs.executors.tally import RunTally
from agentsys.runs.finish_case import deadly_case
from agentsys.runs.plan import Job
from agentsys.runs.planning.run_order import RunOrder
from agentsys.runs.store import Store, StoreError

_log = logging.getLogger(__name__)
_TICK_S = 0.5
_STILLBORN = 3
"""Workers in a row that may end before they are up."""


@dataclass(frozen=True)
class Crowd:
    """How many work on a run."""

    workers: int
    """Worker processes."""
    threads: int
    """Cases whose agents are at work at once in each."""

    def window(self, *, near_end: bool) -> int:
        """Cases that a worker has at a time: with some more than agents at work it has them made ready.

        Near the end of a run it has no more: one that waits in a worker could be at work in another.
        """
        return self.threads if near_end else self.threads + max(1, self.threads // 4)


def run_by_workers(
    jobs: Sequence[Job],
    *,
    staff: Staff,
    crowd: Crowd,
    store: Store,
    claims: Claims,
    listener: Listener,
    meter: Meter | None = None,
) -> RunOutcome:
    """Run every job in workers. Interrupts, budgets and claims of others are heeded as by `threads.execute`.

    Args:
        jobs: The cases to run; asked for one by one, as workers become free.
        staff: Hires workers.
        crowd: How many of them.
        store: Where the workers' records go.
        claims: The driver's own.
        listener: Is told of each record, in the calling thread.
        meter: What the run spends and may spend; None: it has no budget.
    """
    order = RunOrder(jobs, crowd.workers * crowd.threads)
    state = _Driver(RunTally(order, listener, meter), staff, crowd, store, claims, meter or Meter())
    try:
        with held_back() as heed_signals:
            while state.goes_on:
                try:
                    heed_signals()
                    state.turn()
                except StopRequested as asked:
                    state.tally.interrupt(asked.number, state.running)
                except KeyboardInterrupt:
                    state.tally.interrupt(signal.SIGINT, state.running)
        staff.dismiss()
        state.hear(0.0)  # what they spent last
    except BaseException:
        staff.kill()
        raise
    return state.tally.outcome


@dataclass
class _Worker:
    """What the driver knows of a worker."""

    hand: Hand
    tasks: dict[int, Job] = field(default_factory=dict)
    """Its cases, by the number of their tasks."""
    cells: set[int] = field(default_factory=set)
    """Cells it has been told."""
    ready: bool = False
    alone: bool = False
    """Whether its only case is one that may have ended another worker."""
    reading: MeterReading = NOTHING_SPENT


class _Driver:
    """The run under way: which worker has which case."""

    def __init__(
        self, tally: RunTally, staff: Staff, crowd: Crowd, store: Store, claims: Claims, meter: Meter
    ) -> None:
        self.tally, self._staff, self._crowd = tally, staff, crowd
        self._store, self._claims, self._meter = store, claims, meter
        self._workers: dict[Hand, _Worker] = {}
        self._cells: dict[int, tuple[int, Cell]] = {}
        self._suspects = deque[Job]()
        self._lost = set[str]()
        """Cases of workers that ended."""
        self._numbers = count()
        self._drains = False
        self._stillborn = 0
        self._next_round = time.monotonic()

    @property
    def running(self) -> int:
        """Cases that workers have."""
        return sum(len(worker.tasks) for worker in self._workers.values())

    @property
    def goes_on(self) -> bool:
        """Whether there is anything to wait for, or to begin."""
        left = bool(self._suspects) or self.tally.waiting
        return bool(self.running) or (left and not self.tally.stopped)

    def turn(self) -> None:
        """Hand out what there is room for, and hear what came of the rest."""
        if self.tally.stopped and not self._drains:
            self._drains = True
            for worker in self._workers.values():
                worker.hand.send(Drain())
        self._fill()
        self.hear(_TICK_S)
        self.tally.listener.tick()

    def hear(self, timeout_s: float) -> None:
        """Hear what the workers said."""
        for heard in self._staff.heard(timeout_s):
            worker = self._workers.get(heard.hand)
            if worker is not None and isinstance(heard.told, Gone):
                self._gone(worker, heard.told)
            elif worker is not None and not isinstance(heard.told, Gone):
                self._told(worker, heard.told)

    def _fill(self) -> None:
        if time.monotonic() >= self._next_round:  # other processes' cases are not asked after all the time
            self.tally.go_round()
            self._next_round = time.monotonic() + _TICK_S
        while not self.tally.stopped:
            worker = self._with_room()
            if worker is None or not self._give(worker):
                return

    @property
    def _window(self) -> int:
        return self._crowd.window(near_end=self.tally.near_end)

    def _with_room(self) -> _Worker | None:
        for worker in self._workers.values():
            if not worker.tasks or (not worker.alone and len(worker.tasks) < self._window):
                return worker
        if len(self._workers) < self._crowd.workers and (self._suspects or self.tally.waiting):
            return self._hired()
        return None

    def _hired(self) -> _Worker:
        worker = _Worker(self._staff.hire())
        self._workers[worker.hand] = worker
        self._tell_spending(worker)
        return worker

    def _give(self, worker: _Worker) -> bool:
        """Hand out as many cases as a worker has room for; say whether there were any."""
        worker.alone = bool(self._suspects) and not worker.tasks
        jobs = [self._suspects.popleft()] if worker.alone else self._next_jobs(worker)
        tasks = [self._task(worker, job) for job in jobs]
        if tasks:
            worker.hand.send(CaseTasks(tasks))
        return bool(tasks)

    def _next_jobs(self, worker: _Worker) -> list[Job]:
        found = list[Job]()
        running = [job for one in self._workers.values() for job in one.tasks.values()]
        while len(worker.tasks) + len(found) < self._window:
            job = self.tally.next(running)
            if job is None:
                break
            found.append(job)
            running.append(job)
        return found

    def _task(self, worker: _Worker, job: Job) -> CaseTask:
        number, _ = self._cells.setdefault(id(job.cell), (len(self._cells), job.cell))
        if number not in worker.cells:
            worker.cells.add(number)
            settings = job.cell.settings
            worker.hand.send(CellToBuild(number, settings, settings.config_hash, job.cell.notes))
        task = CaseTask(next(self._numbers), number, job.case, self._store.seen(job.case))
        worker.tasks[task.number] = job
        return task

    def _told(self, worker: _Worker, told: Told) -> None:
        match told:
            case Ready():
                worker.ready, self._stillborn = True, 0
                _log.info("%s is ready", worker.hand.name)
            case Ended(task, end):
                self.tally.book(worker.tasks.pop(task), end, self.running)
            case NotRun():
                self._not_run(worker.tasks.pop(told.task), told)
            case AttemptMade(record):
                self.tally.listener.attempted(record)
            case WorkerSpent(reading):
                self._meter.add_elsewhere(reading - worker.reading)
                worker.reading = reading
                for other in self._workers.values():
                    if other is not worker:
                        self._tell_spending(other)
            case CannotGoOn(why):
                self.tally.stop(why, self.running)

    def _not_run(self, job: Job, told: NotRun) -> None:
        if told.stored:
            # A worker that was cut off may end its cases all the same, after we had looked: they are ours.
            if job.case.key not in self._lost or not self._was_stored(job):
                self.tally.found_stored()
        elif told.claimed:
            self.tally.put_off(job)
        elif told.over_budget:
            self.tally.end_by_budget(self.running)
        else:
            self.tally.put_back([job])

    def _tell_spending(self, worker: _Worker) -> None:
        if self._meter.limited:
            worker.hand.send(SpentElsewhere(self._meter.reading - worker.reading))

    def _gone(self, worker: _Worker, gone: Gone) -> None:
        """See what a worker that ended has stored; the rest is run again."""
        del self._workers[worker.hand]
        self._meter.add_elsewhere(MeterReading(waiting=-worker.reading.waiting))
        self._claims.remove_dead()
        if not worker.ready and not gone.blameless:
            self._stillborn += 1
        lost = [job for job in worker.tasks.values() if not self._was_stored(job)]
        self._lost |= {job.case.key for job in lost}
        if not worker.ready or gone.blameless:
            self.tally.put_back(lost)
        elif worker.alone and lost:
            self._write_off(lost[0], gone)
        else:
            self._suspects.extend(lost)
        if self._stillborn >= _STILLBORN:
            self.tally.stop(f"{gone.how} before it could begin, as those before it did.", self.running)

    def _was_stored(self, job: Job) -> bool:
        found = self._store.read(job.case) if self._store.renewed(job.case) else None
        if found is not None:
            self.tally.book(job, CaseEnd(briefly(found.record), error=found.error), self.running)
        return found is not None

    def _write_off(self, job: Job, gone: Gone) -> None:
        try:
            if not self._claims.take(job.case.key):
                self.tally.put_off(job)
                return
            done = deadly_case(job, gone.how)
            self._store.write(done.record, done.agentdojo)
            self._claims.release(job.case.key)
        except StoreError as error:
            self.tally.stop(str(error), self.running)
            return
        self.tally.book(job, CaseEnd(done.record, error=done.agentdojo.get("error")), self.running)
