"""Control of a run under way: which case begins next, what came of the others, when to stop."""

from __future__ import annotations

import math
import signal
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import TypeAlias

from agentsys.attacks.attacker_reply import ATTACKER_FAULTS
from agentsys.models.budget import Meter
from agentsys.records.case import Case
from agentsys.records.schema import CaseRecord
from agentsys.runs.cell import Cell
from agentsys.runs.jobs import Job
from agentsys.runs.run_totals import AbandonedCell, ErrorCount, Listener, RunOutcome, RunSpending

_STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Windows has no SIGHUP."""


@contextmanager
def defer_signals() -> Iterator[Callable[[], None]]:
    """Inside the block signals that end the run wait until the function is called that is handed out.

    It does what each handler would have done, so it may raise. Otherwise they strike anywhere: between the
    end of a case and the line that books it, too. A second Ctrl-C strikes at once, as the function may never
    be called again. On other threads than the main one, which get no signals, nothing changes.
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


DurationKey: TypeAlias = tuple[str | None, ...]
_LAST_PER_WORKER = 8
"""Cases for each worker, at the end of a plan, that are not begun in its order."""


class RunOrder(Iterator[Job]):
    """Gives out a plan's cases in order, but of the last ones those first that are expected to take longest.

    Who begins a long case last keeps all other workers waiting. 64 of them that did nothing but wait for
    their model would stand idle for 7% of the time that AgentDojo's 949 attacked cases take in the plan's
    order, and for 2% of it in this one. What cases take is learned from those that ended.

    Args:
        jobs: The cases.
        workers: Cases under way at once. One has nobody to wait for, and takes all of them in order.
    """

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        in_order = len(jobs) if workers == 1 else max(0, len(jobs) - _LAST_PER_WORKER * workers)
        self._in_order = islice(jobs, in_order)
        self._last = (jobs[place] for place in range(len(jobs) - 1, in_order - 1, -1))
        self._left: list[Job] = []
        self._seconds = _CaseDurations()
        self._every, self._to_go = max(1, workers // 4), 0

    def __next__(self) -> Job:
        job = next(self._in_order, None) or self._pop_longest()
        self._seconds.mark_begun(job.case)
        return job

    def learn_duration(self, case: Case, seconds: float) -> None:
        """Learn from a case that took so long."""
        self._seconds.add(case, seconds)

    def _pop_longest(self) -> Job:
        self._left.extend(self._last)
        if not self._left:
            raise StopIteration
        if not self._to_go:  # not for each case: what is known changes little from one to the next
            self._sort()
            self._to_go = self._every
        self._to_go -= 1
        return self._left.pop()

    def _sort(self) -> None:
        """Put the longest last, as cases are taken from there; behind them one of each unknown user task."""
        firsts = set(map(id, self._seconds.first_of_unknown_tasks(self._left)))
        expected = self._seconds.expected_seconds
        self._left.sort(key=lambda job: math.inf if id(job) in firsts else expected(job.case))


class _CaseDurations:
    """What cases took: with each injection task, and how much more or less that was for each user task.

    Not what each user task took: the first that ended of one may have been with a short injection task.
    """

    def __init__(self) -> None:
        self._took: defaultdict[DurationKey, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._begun: set[DurationKey] = set()

    def mark_begun(self, case: Case) -> None:
        """Note that a case of its user task is under way."""
        self._begun.add(_duration_keys(case)[1])

    def first_of_unknown_tasks(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Of each user task that no case was begun of the last one."""
        by_task = {_duration_keys(job.case)[1]: job for job in jobs}
        return (job for key, job in by_task.items() if key not in self._begun)

    def add(self, case: Case, seconds: float) -> None:
        """Learn what a case took."""
        suite, user_task, injection_task = _duration_keys(case)
        self._add_seconds(suite, seconds)
        self._add_seconds(injection_task, seconds)
        self._add_seconds(user_task, seconds - self._mean(injection_task, seconds))

    def expected_seconds(self, case: Case) -> float:
        """Seconds that a case will take, as far as is known; 0 where nothing is."""
        suite, user_task, injection_task = _duration_keys(case)
        return self._mean(injection_task, self._mean(suite, 0.0)) + self._mean(user_task, 0.0)

    def _add_seconds(self, key: DurationKey, seconds: float) -> None:
        took = self._took[key]
        took[0] += seconds
        took[1] += 1.0

    def _mean(self, key: DurationKey, unknown: float) -> float:
        total, number = self._took.get(key, (unknown, 1.0))
        return total / number


def _duration_keys(case: Case) -> tuple[DurationKey, DurationKey, DurationKey]:
    suite = case.model, case.defense, case.attack, case.suite
    return suite, (*suite, "user task", case.user_task_id), (*suite, "injection task", case.injection_task_id)


_MAX_TRACEBACKS = 3
"""Most tracebacks that an outcome holds; each stands in its case's record."""


@dataclass(frozen=True)
class CaseEnd:
    """What came of a case whose record is stored."""

    record: CaseRecord
    fatal: str | None = None
    """Why no further case should be started."""
    cell_ended: str | None = None
    """Why no further case of its cell should be started."""
    error: str | None = None
    """What went wrong in it, in full."""


class RunTally:
    """The run under way. Used from one thread.

    Args:
        order: The cases to run; asked for one by one.
        listener: Is told of each record.
        meter: What the run spends and may spend; None: it has no budget.
    """

    def __init__(self, order: RunOrder, listener: Listener, meter: Meter | None = None) -> None:
        self.listener, self.spending = listener, RunSpending(meter or Meter())
        self.fatal: str | None = None
        self.budget: str | None = None
        self.interrupted = False
        self.finished = self.errors = self.elsewhere = self.no_text = 0
        self._order = order
        self._ahead, self._others = deque[Job](), deque[Job]()
        self._signal: int = signal.SIGINT
        self._given_up: dict[int, tuple[Cell, str]] = {}
        self._left: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._messages: dict[str, str] = {}
        self._tracebacks: dict[tuple[str | None, str], str] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether no further case is started."""
        return self.interrupted or self.fatal is not None or self.budget is not None

    @property
    def has_waiting(self) -> bool:
        """Whether there is anything that this run still wants to see begun."""
        return not self.is_stopped and (bool(self._others) or self._peek_next() is not None)

    def next_job(self, running: Collection[Job]) -> Job | None:
        """The next case to begin beside the running ones; None: none fits now.

        Cases of cells that were given up are passed over.
        """
        if self.is_stopped:
            return None
        job = self._peek_next()
        while job is not None and id(job.cell) in self._given_up:
            self._left[id(self._ahead.popleft().cell)] += 1
            job = self._peek_next()
        if job is None:
            return None
        if not self.spending.fits(job, running):
            if not running:
                self.end_by_budget(0)
            return None
        return self._ahead.popleft()

    def retry_postponed(self) -> None:
        """Come back to the cases that other processes had claimed, once nothing else waits."""
        if self._peek_next() is None:
            self._ahead, self._others = self._others, deque()

    def postpone(self, job: Job) -> None:
        """Another process has the case: look again later."""
        self._others.append(job)

    def count_stored_elsewhere(self) -> None:
        """Another process stored a case of this plan."""
        self.elsewhere += 1
        self.listener.elsewhere()

    def book(self, job: Job, end: CaseEnd, running: int) -> None:
        """Count a case that was stored."""
        self._note_end(job, end)
        self._order.learn_duration(job.case, max((span.duration_s for span in end.record.spans), default=0.0))
        self.finished += 1
        self.errors += end.record.status == "error"
        if end.record.traceback and len(self._tracebacks) < _MAX_TRACEBACKS:
            self._tracebacks.setdefault(_bug_location(end.record), end.record.traceback)
        self.no_text += end.record.error_kind in ATTACKER_FAULTS
        self.listener.finished(end.record)
        if end.fatal is not None:
            self.stop(end.fatal, running)

    def stop(self, why: str, running: int) -> None:
        """Start no further case, for every one would fail alike."""
        if self.fatal is None:
            self.fatal = why
            self.listener.stopping(why, running)

    def end_by_budget(self, running: int) -> None:
        """Start no further case, for none fits the budget."""
        if self.budget is None:
            self.budget = self.spending.meter.limit_message
            self.listener.stopping(self.budget, running)

    def interrupt(self, number: int, running: int) -> None:
        """Start no further case, for somebody asks to end.

        Raises:
            KeyboardInterrupt: If a user asks for the second time.
        """
        if self.interrupted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.interrupted:  # a batch system sends its signal more than once
            self.interrupted, self._signal = True, number
            self.listener.stopping("interrupted", running)

    @property
    def outcome(self) -> RunOutcome:
        """How the run has ended, or would if it ended now."""
        return RunOutcome(
            self.finished,
            self.errors,
            self.fatal,
            self.interrupted,
            self._signal,
            self.elsewhere,
            tuple(self._tracebacks.values()),
            self.budget,
            tuple(
                AbandonedCell(_cell_labels(c), why, self._left[key])
                for key, (c, why) in self._given_up.items()
            ),
            tuple(ErrorCount(kind, n, self._messages[kind]) for kind, n in self._kinds.most_common()),
            self.no_text,
        )

    def _peek_next(self) -> Job | None:
        if not self._ahead and (job := next(self._order, None)) is not None:
            self._ahead.append(job)
        return self._ahead[0] if self._ahead else None

    def _note_end(self, job: Job, end: CaseEnd) -> None:
        self.spending.add(job, end.record)
        if end.record.error_kind is not None:
            self._kinds[end.record.error_kind] += 1
            self._messages.setdefault(end.record.error_kind, end.error or "")
        if end.cell_ended is not None:
            self._given_up.setdefault(id(job.cell), (job.cell, end.cell_ended))


def _cell_labels(cell: Cell) -> tuple[str, str, str]:
    labels = cell.settings.labels
    return labels["model"], labels["defense"], labels["attack"]


def _bug_location(record: CaseRecord) -> tuple[str | None, str]:
    """What tells one bug from another: the error kind, and the line of code that raised."""
    lines = [line for line in (record.traceback or "").splitlines() if line.lstrip().startswith("File ")]
    return record.error_kind, lines[-1] if lines else ""
