"""Control of a run under way: which case begins next, what came of the others (`RunOutcome`), when to stop.

Events are told to a `Listener` as the run goes on.
"""

from __future__ import annotations

import signal
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from agentsys.attacks.attacker_prompt import ATTACKER_FAULTS
from agentsys.models.budget import Meter
from agentsys.models.chat import Consequence, ErrorKind
from agentsys.records.schema import CaseRecord
from agentsys.runs.case_outcome import CaseEnd
from agentsys.runs.cell import CellLabels, Job


class Listener(Protocol):
    """Receives the events of a run, as the progress display does. Called from the calling thread only.

    A subclass has to define `on_case_stored`; by default nothing is done at the other events.
    """

    def on_case_stored(self, record: CaseRecord) -> None:
        """A case was stored."""

    def on_attempt_stored(self, record: CaseRecord) -> None:
        """An attempt of a search was stored."""
        return

    def on_processes_joined(self, processes: Sequence[int]) -> None:
        """Other processes (their numbers) are at work in the same log folder."""
        return

    def on_case_stored_elsewhere(self, labels: CellLabels) -> None:
        """Another process stored a case of this plan, in the cell of these labels."""
        return

    def on_tick(self) -> None:
        """Time passed; nothing new. Called about once a second."""
        return

    def on_stop(self, why: str, running: int) -> None:
        """No new case is started; `running` ones are being finished."""
        return


class AbandonedCell(NamedTuple):
    """A cell that was given up, because every further case would have failed in the same way."""

    labels: CellLabels
    why: str
    left: int
    """Cases that were not started."""


class ErrorCount(NamedTuple):
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
    ended_cells: tuple[AbandonedCell, ...] = ()
    """The cells that were given up."""
    troubles: tuple[ErrorCount, ...] = ()
    """What errors there were, the most frequent first."""
    no_text: int = 0
    """Those of `errors` whose attack's search had no attacker to speak of."""
    summary: str = ""
    """One line from what ran the cases, for the end of the run; `""`: nothing."""


_MENDS = {
    "connection": "Is the server up, and model.base_url right?",
    "timeout": "Is the server up, and model.timeout_s long enough?",
    "bad_key": "Check the key.",
    "forbidden": "The account may not use this model, or not from here.",
    "too_large": "The account's limit of tokens a minute, or of a request's size, is too small for this case.",
    "no_credit": "The account has no credit.",
    "unknown_model": "Check model.model_id and model.base_url.",
    "malformed_reply": "Does the server speak this API, and is model.base_url right?",
    "context_length": "The model's context is too small for this defense or suite.",
    "case_budget": "Raise budget.case_tokens or budget.case_seconds.",
    "cache_miss": "Is it the cache of a run with these very settings (cache.dir)?",
    "defense": "The defense's code broke; the records hold where.",
    "replay_diverged": (
        "Recorded runs replay under the defense and version they were made with; check benchmark.version=, and for"
        " runs that AgentDojo published take the preset defense=NAME_compat."
    ),
    "model": "The model adapter's code broke; the records hold where.",
}


def describe_likely_cause(troubles: Sequence[ErrorCount]) -> str:
    """One line: the most frequent error, and what to do about it."""
    if not troubles:
        return "no case was stored."
    worst, cases = troubles[0], sum(one.cases for one in troubles)
    message = worst.message.splitlines()[0][:300] if worst.message else "no message"
    return f"{worst.cases} of {cases} cases end in {worst.kind} ({message}). {_MENDS.get(worst.kind, '')}".strip()


_SERVER_ERRORS = frozenset(kind.value for kind in ErrorKind if kind.consequence is Consequence.RETRY)
"""Kinds that say nothing of the case: all that were asked again in vain."""
_FEWEST_CASES = 10
"""Cases of a model before a share of them says anything."""


@dataclass
class _ErrorStreak:
    """The latest cases of one model that its server failed, one after the other."""

    kind: str = ""
    row: int = 0
    """Cases in a row that ended by this kind of error."""
    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str | None) -> None:
        self.done += 1
        if kind not in _SERVER_ERRORS or kind is None:
            self.kind, self.row = "", 0
            return
        self.row = self.row + 1 if kind == self.kind else 1
        self.kind = kind
        self.counts[kind] += 1

    def reaches(self, limit: float) -> bool:
        if limit >= 1 or not self.kind:
            return self.row >= limit
        return self.done >= _FEWEST_CASES and self.counts[self.kind] >= limit * self.done

    def describe(self, model: str) -> str:
        """Say how often; the last error's own words are to follow."""
        often = f"{self.row} cases of {model} in a row ended"
        if self.counts[self.kind] > self.row:
            often = f"{self.counts[self.kind]} of {self.done} cases of {model} ended"
        return f"{often} in {self.kind}"


_MAX_TRACEBACKS = 3
"""Most tracebacks that an outcome holds; each stands in its case's record."""


class RunTally:
    """The run under way. Used from one thread.

    Args:
        jobs: The cases.
        listener: Is told what happens.
        meter: None: the run has no budget.
        counts_streaks: Whether the errors of a server in a row (`budget.errors`) stop the run.
    """

    def __init__(
        self, jobs: Iterable[Job], listener: Listener, meter: Meter | None, *, counts_streaks: bool = True
    ) -> None:
        self.listener, self.meter = listener, meter or Meter()
        self.fatal: str | None = None
        self.budget: str | None = None
        self.interrupted = False
        self.finished = self.errors = self.elsewhere = self.no_text = 0
        self._jobs = iter(jobs)
        self._ahead, self._others = deque[Job](), deque[Job]()
        self._signal: int = signal.SIGINT
        self._most_errors = meter.budget.errors if meter is not None and counts_streaks else None
        self._streaks: defaultdict[str, _ErrorStreak] = defaultdict(_ErrorStreak)
        self._given_up: dict[int, tuple[CellLabels, str]] = {}
        self._spent: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        self._left: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._messages: dict[str, str] = {}
        self._tracebacks: dict[tuple[str | None, str], str] = {}

    @property
    def is_stopped(self) -> bool:
        """True if no further case is started."""
        return self.interrupted or self.fatal is not None or self.budget is not None

    @property
    def has_waiting(self) -> bool:
        """True if there is anything that this run still wants to see begun."""
        return not self.is_stopped and (bool(self._others) or self._peek_next() is not None)

    def pick_next_job(self, running: Collection[Job]) -> Job | None:
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
        if not self._fits_budget(job, running):
            if not running:
                self.end_by_budget(0)
            return None
        return self._ahead.popleft()

    def retry_postponed(self) -> None:
        """Come back to the cases that other processes had claimed, once nothing else waits."""
        if self._peek_next() is None:
            self._ahead, self._others = self._others, deque()

    def resume(self, jobs: Iterable[Job]) -> None:
        """Put cases that were picked and not begun before all others."""
        self._ahead.extendleft(reversed(list(jobs)))

    def postpone(self, job: Job) -> None:
        """Another process has the case: look again later."""
        self._others.append(job)

    def count_stored_elsewhere(self, job: Job) -> None:
        """Another process stored a case of this plan."""
        self.elsewhere += 1
        self.listener.on_case_stored_elsewhere(job.labels)

    def book(self, job: Job, end: CaseEnd, running: int) -> None:
        """Count a case that was stored."""
        usages = end.record.usage.values()
        tokens = sum(usage.prompt + usage.completion for usage in usages)
        self._spent[id(job.cell)].append((sum(usage.cost_usd or 0.0 for usage in usages), tokens))
        if end.record.error_kind is not None:
            self._kinds[end.record.error_kind] += 1
            self._messages.setdefault(end.record.error_kind, end.agentdojo.get("error") or "")
        if end.cell_ended is not None:
            self._given_up.setdefault(id(job.cell), (job.labels, end.cell_ended))
        self.finished += 1
        self.errors += end.record.status == "error"
        if end.record.traceback and len(self._tracebacks) < _MAX_TRACEBACKS:
            self._tracebacks.setdefault(_locate_bug(end.record), end.record.traceback)
        self.no_text += end.record.error_kind in ATTACKER_FAULTS
        self.listener.on_case_stored(end.record)
        streak = self._streaks[job.labels.model]
        streak.add(end.record.error_kind)
        if end.fatal is not None:
            self.stop(end.fatal, running)
        elif self._most_errors is not None and streak.reaches(self._most_errors):
            message = end.agentdojo.get("error") or streak.kind
            self.stop(f"{streak.describe(job.labels.model)}: {message} (budget.errors).", running)

    def stop(self, why: str, running: int) -> None:
        """Start no further case, for every one would fail alike."""
        if self.fatal is None:
            self.fatal = why
            self.listener.on_stop(why, running)

    def end_by_budget(self, running: int) -> None:
        """Start no further case, for none fits the budget."""
        if self.budget is None:
            self.budget = self.meter.limit_message
            self.listener.on_stop(self.budget, running)

    def interrupt(self, number: int, running: int) -> None:
        """Start no further case, for somebody asks to end.

        Raises:
            KeyboardInterrupt: If a user asks for the second time.
        """
        if self.interrupted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.interrupted:  # a batch system sends its signal more than once
            self.interrupted, self._signal = True, number
            self.listener.on_stop("interrupted", running)

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
                AbandonedCell(labels, why, self._left[key]) for key, (labels, why) in self._given_up.items()
            ),
            tuple(ErrorCount(kind, n, self._messages[kind]) for kind, n in self._kinds.most_common()),
            self.no_text,
        )

    def _peek_next(self) -> Job | None:
        if not self._ahead and (job := next(self._jobs, None)) is not None:
            self._ahead.append(job)
        return self._ahead[0] if self._ahead else None

    def _fits_budget(self, job: Job, running: Collection[Job]) -> bool:
        """True if the budget covers the running cases and one more. Until a case has ended, one runs alone."""
        if not self.meter.is_limited:
            return True
        if not self._spent:
            return not running and self.meter.has_room()
        dearest = [self._find_highest_cost(one) for one in (*running, job)]
        return self.meter.has_room(sum(usd for usd, _ in dearest), sum(tokens for _, tokens in dearest))

    def _find_highest_cost(self, job: Job) -> tuple[float, float]:
        """Find the highest cost of such a case. The mean would be too low, because cheap cases end first."""
        known = self._spent.get(id(job.cell)) or [one for some in self._spent.values() for one in some]
        return max(usd for usd, _ in known), max(tokens for _, tokens in known)


def _locate_bug(record: CaseRecord) -> tuple[str | None, str]:
    lines = [line for line in (record.traceback or "").splitlines() if line.lstrip().startswith("File ")]
    return record.error_kind, lines[-1] if lines else ""
