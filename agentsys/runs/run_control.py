"""Control of a run under way: which case begins next, what came of the others, when to stop."""

from __future__ import annotations

import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from agentsys.attacks.attacker_reply import ATTACKER_FAULTS
from agentsys.models.budget import Meter
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
        jobs: The cases to run, in order; asked for one by one.
        listener: Is told of each record.
        meter: What the run spends and may spend; None: it has no budget.
    """

    def __init__(self, jobs: Iterable[Job], listener: Listener, meter: Meter | None = None) -> None:
        self.listener, self.spending = listener, RunSpending(meter or Meter())
        self.fatal: str | None = None
        self.budget: str | None = None
        self.interrupted = False
        self.finished = self.errors = self.elsewhere = self.no_text = 0
        self._jobs = iter(jobs)
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
        self.spending.add(job, end.record)
        if end.record.error_kind is not None:
            self._kinds[end.record.error_kind] += 1
            self._messages.setdefault(end.record.error_kind, end.agentdojo.get("error") or "")
        if end.cell_ended is not None:
            self._given_up.setdefault(id(job.cell), (job.cell, end.cell_ended))
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
        if not self._ahead and (job := next(self._jobs, None)) is not None:
            self._ahead.append(job)
        return self._ahead[0] if self._ahead else None


def _cell_labels(cell: Cell) -> tuple[str, str, str]:
    labels = cell.settings.labels
    return labels["model"], labels["defense"], labels["attack"]


def _bug_location(record: CaseRecord) -> tuple[str | None, str]:
    """What tells one bug from another: the error kind, and the line of code that raised."""
    lines = [line for line in (record.traceback or "").splitlines() if line.lstrip().startswith("File ")]
    return record.error_kind, lines[-1] if lines else ""
