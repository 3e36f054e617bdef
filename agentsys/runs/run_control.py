"""Control of a run under way: which case begins next, what came of the others, when to stop."""

from __future__ import annotations

import math
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from agentsys.attacks.attacker_reply import ATTACKER_FAULTS
from agentsys.models.budget import Meter
from agentsys.records.case import Case
from agentsys.records.schema import CaseRecord
from agentsys.runs.cell import Cell
from agentsys.runs.plan import Job
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


_LAST_PER_WORKER = 8
"""Cases for each worker, at the end of a plan, that are not begun in its order."""
_MOST_AT_END = 1024
"""As many of them at most: all that are left are compared whenever one is begun."""


class RunOrder(Iterator[Job]):
    """Gives out a plan's cases in order, but of the last ones those first that are expected to take longest.

    Args:
        jobs: The cases.
        workers: Cases under way at once. One has nobody to wait for, and takes all of them in order.
    """

    # Who begins a long case last keeps all other workers waiting: in the plan's order 64 of them that do
    # nothing but wait for their model stand idle for 7% of the time of AgentDojo's 949 attacked cases.

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        at_end = 0 if workers == 1 else min(_LAST_PER_WORKER * workers, _MOST_AT_END)
        in_order = max(0, len(jobs) - at_end)
        self._in_order, self._left = iter(jobs[:in_order]), list(jobs[in_order:])
        self._begun: set[tuple[str, ...]] = set()
        self._seconds: dict[tuple[str, ...], tuple[float, int]] = {}

    def __next__(self) -> Job:
        job = next(self._in_order, None)
        if job is None:
            if not self._left:
                raise StopIteration
            job = max(self._left, key=self._expected_seconds)
            self._left.remove(job)
        self._begun.add(_task_keys(job.case)[0])
        return job

    def learn_duration(self, case: Case, seconds: float) -> None:
        """Learn from a case that took so long."""
        user_task, injection_task = _task_keys(case)
        self._add_seconds(injection_task, seconds)
        # How much more or less than others with this injection task: the first case of a user task to end may
        # have been with a short one.
        self._add_seconds(user_task, seconds - self._mean(injection_task))

    def _expected_seconds(self, job: Job) -> float:
        """What a case will take; one of each user task that none was begun of comes first."""
        user_task, injection_task = _task_keys(job.case)
        known = user_task in self._begun
        return self._mean(injection_task) + self._mean(user_task) if known else math.inf

    def _add_seconds(self, key: tuple[str, ...], seconds: float) -> None:
        total, count = self._seconds.get(key, (0.0, 0))
        self._seconds[key] = total + seconds, count + 1

    def _mean(self, key: tuple[str, ...]) -> float:
        total, count = self._seconds.get(key, (0.0, 1))
        return total / count


def _task_keys(case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    cell = case.model, case.defense, case.attack, case.suite
    return (*cell, case.user_task_id), (*cell, "attacked by", case.injection_task_id or "")


_MAX_TRACEBACKS = 3
"""Most tracebacks that an outcome holds; each stands in its case's record."""


@dataclass(frozen=True)
class CaseEnd:
    """What came of a case, and what is stored of it."""

    record: CaseRecord
    agentdojo: Mapping[str, Any]
    """The fields AgentDojo's loader wants, `error` among them."""
    fatal: str | None = None
    """Why no further case should be started."""
    cell_ended: str | None = None
    """Why no further case of its cell should be started."""


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
            self._messages.setdefault(end.record.error_kind, end.agentdojo.get("error") or "")
        if end.cell_ended is not None:
            self._given_up.setdefault(id(job.cell), (job.cell, end.cell_ended))


def _cell_labels(cell: Cell) -> tuple[str, str, str]:
    labels = cell.settings.labels
    return labels["model"], labels["defense"], labels["attack"]


def _bug_location(record: CaseRecord) -> tuple[str | None, str]:
    """What tells one bug from another: the error kind, and the line of code that raised."""
    lines = [line for line in (record.traceback or "").splitlines() if line.lstrip().startswith("File ")]
    return record.error_kind, lines[-1] if lines else ""
