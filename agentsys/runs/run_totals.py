"""Figures of a run: events as it goes on (`Listener`), totals, spending, and its `RunOutcome`."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentsys.attacks.search_options import PER_CASE
from agentsys.base.config_catalog import list_config_names
from agentsys.base.grouping import abbreviate_count, format_duration
from agentsys.models.budget import Meter
from agentsys.records.case_row import NO_ATTACK
from agentsys.records.schema import CaseRecord
from agentsys.runs.plan import Job

if TYPE_CHECKING:
    from agentsys.runs.settings import Settings


class Listener(Protocol):
    """Is told how a run goes (the progress display, for one). Called from the calling thread only.

    Who inherits from it need say only what is done when a case was stored; the rest is passed over.
    """

    def finished(self, record: CaseRecord) -> None:
        """A case was stored."""

    def attempted(self, record: CaseRecord) -> None:
        """An attempt of a search was stored."""
        return

    def joined(self, processes: Sequence[int]) -> None:
        """Other processes (their numbers) are at work in the same log folder."""
        return

    def elsewhere(self) -> None:
        """Another process stored a case of this plan."""
        return

    def tick(self) -> None:
        """Time passed; nothing new. Called about once a second."""
        return

    def stopping(self, why: str, running: int) -> None:
        """No new case is started; `running` ones are being finished."""
        return


@dataclass(frozen=True)
class AbandonedCell:
    """A cell every further case of which would have failed alike."""

    labels: tuple[str, str, str]
    """Of model, defense and attack."""
    why: str
    left: int
    """Cases that were not started."""


@dataclass(frozen=True)
class ErrorCount:
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


_MENDS = {
    "connection": "Is the server up, and model.base_url right?",
    "timeout": "Is the server up, and model.timeout_s long enough?",
    "bad_key": "Check the key.",
    "no_credit": "The account has no credit.",
    "unknown_model": "Check model.model_id and model.base_url.",
    "malformed_reply": "Does the server speak this API, and is model.base_url right?",
    "context_length": "The model's context is too small for this defense or suite.",
    "case_budget": "Raise budget.case_tokens or budget.case_seconds.",
    "cache_miss": "Is it the cache of a run with these very settings (cache.dir)?",
    "defense": "The defense's code broke; the records hold where.",
    "model": "The model adapter's code broke; the records hold where.",
}
_REPLAY_HINT = "Recorded runs replay under the defense and version they were made with"


def describe_likely_cause(troubles: Sequence[ErrorCount], settings: Sequence[Settings]) -> str:
    """One line: the most frequent error, and what to do about it."""
    if not troubles:
        return "no case was stored."
    worst, cases = troubles[0], sum(one.cases for one in troubles)
    mend = _mend_of_replay(settings) if worst.kind == "replay_diverged" else _MENDS.get(worst.kind, "")
    said = worst.message.splitlines()[0][:300] if worst.message else "no message"
    return f"{worst.cases} of {cases} cases end in {worst.kind} ({said}). {mend}".strip()


def _mend_of_replay(settings: Sequence[Settings]) -> str:
    """Published runs of some defenses are AgentDojo's own; our presets for those are `*_compat`."""
    presets, used = (
        set(list_config_names("defense")),
        dict.fromkeys(one.labels["defense"] for one in settings),
    )
    twins = [f"{defense}_compat" for defense in used if f"{defense}_compat" in presets]
    if twins:
        return f"{_REPLAY_HINT}: for published ones that is defense={','.join(twins)}."
    return f"{_REPLAY_HINT}: check defense= and benchmark.version=."


class CellLabels(NamedTuple):
    """Labels of a cell, as records have them."""

    model: str
    defense: str
    attack: str


@dataclass
class CellTotals:
    """Counts of one cell since the run started."""

    planned: int
    """Cases to run."""
    done: int = 0
    errors: int = 0
    rated: int = 0
    """Cases that ended without an error."""
    solved: int = 0
    hit: int = 0
    """Attacked cases whose injection task was carried out."""
    seconds: float = 0.0
    """Time that its finished cases took, one after the other."""

    def add(self, record: CaseRecord) -> None:
        """Count one finished case; errored cases enter no rate."""
        self.done += 1
        self.seconds += max((span.duration_s for span in record.spans), default=0.0)
        if record.status == "error":
            self.errors += 1
            return
        self.rated += 1
        self.solved += record.utility
        self.hit += record.case.injection_task_id is not None and record.security


@dataclass
class RunningTotals:
    """Counts since the run started. Rates are pooled over the suites; tables come later."""

    planned: int
    """Cases to run."""
    clock: Callable[[], float] = time.monotonic
    cells: dict[CellLabels, CellTotals] = field(default_factory=dict)
    """In the order of the plan."""
    done: int = 0
    attempts: int = 0
    """Attempts that searches made."""
    tokens: int | None = 0
    """None as soon as one reply came without a count."""
    cost_usd: float | None = 0.0
    """None as soon as one call has no known price."""
    started: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @classmethod
    def of_jobs(cls, jobs: Iterable[Job]) -> RunningTotals:
        """Totals of a run that is about to start."""
        planned = Counter(CellLabels(job.case.model, job.case.defense, job.case.attack) for job in jobs)
        return cls(planned.total(), cells={name: CellTotals(count) for name, count in planned.items()})

    def add_attempt(self, record: CaseRecord) -> None:
        """Count one attempt of a search: it costs, and is no case."""
        self.attempts += 1
        self._add_cost(record)

    def add(self, record: CaseRecord) -> None:
        """Count one finished case."""
        self.done += 1
        search = record.search
        # The record of a search's best attempt has its cost counted already.
        if search is None or search.mode != PER_CASE or search.attempts <= search.refused:
            self._add_cost(record)
        case = record.case
        self.cells.setdefault(CellLabels(case.model, case.defense, case.attack), CellTotals(1)).add(record)

    def _add_cost(self, record: CaseRecord) -> None:
        for usage in record.usage.values():
            counted = self.tokens is not None and not usage.uncounted
            self.tokens = (self.tokens or 0) + usage.prompt + usage.completion if counted else None
            known = self.cost_usd is not None and usage.cost_usd is not None
            self.cost_usd = (self.cost_usd or 0.0) + (usage.cost_usd or 0.0) if known else None

    @property
    def errors(self) -> int:
        """Cases that ended in an error."""
        return sum(cell.errors for cell in self.cells.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the run started."""
        return self.clock() - self.started

    @property
    def per_second(self) -> float:
        """Cases finished per second so far; 0 before the first."""
        return self.done / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end; None before the first case.

        What is left of a cell takes what its cases took so far (of one not begun: what all cases took), and
        as many go on side by side as did so far.
        """
        if not self.done:
            return None
        spent = sum(cell.seconds for cell in self.cells.values())
        if not spent:
            return (self.planned - self.done) / self.per_second if self.per_second else None
        left = sum(
            max(cell.planned - cell.done, 0) * (cell.seconds / cell.done if cell.done else spent / self.done)
            for cell in self.cells.values()
        )
        return left * self.elapsed / spent

    @property
    def progress(self) -> str:
        """How far it is, and how long it takes."""
        left = f", {format_duration(self.seconds_left)} left" if self.done < self.planned else ""
        rate = f", {self.per_second:.1f} a second" if self.done else ""
        return f"{self.done}/{self.planned} cases{rate}, {format_duration(self.elapsed)} elapsed{left}"

    def format_figures(self) -> str:
        """ASR per defense, errors and what was spent."""
        rates = [f"ASR {name} {asr}" for name, asr in self.asr_by_defense().items()]
        return ", ".join([*rates, self.spending_text])

    @property
    def spending_text(self) -> str:
        """Errors, and what the cases took."""
        parts = [
            f"errors {self.errors}",
            *([f"attempts {self.attempts}"] if self.attempts else []),
            "tokens unknown" if self.tokens is None else f"tokens {abbreviate_count(self.tokens)}",
            "cost unknown" if self.cost_usd is None else f"cost ${self.cost_usd:.2f}",
        ]
        return ", ".join(parts)

    def asr_by_defense(self) -> dict[str, str]:
        """Defense, behind its model if there are several -> ASR over all attacks so far."""
        several = len({name.model for name in self.cells}) > 1
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for name, cell in self.cells.items():
            if name.attack != NO_ATTACK:
                both = sums[f"{name.model} / {name.defense}" if several else name.defense]
                both[0], both[1] = both[0] + cell.hit, both[1] + cell.rated
        return {name: format_share(hit, rated) for name, (hit, rated) in sums.items()}


def format_share(part: int, whole: int) -> str:
    """A share in percent, e.g. `52.1%`; `-` of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


@dataclass
class RunSpending:
    """Watches a run's budget."""

    meter: Meter
    _of_cell: defaultdict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, job: Job, record: CaseRecord) -> None:
        """Note what a finished case cost."""
        usd = sum(usage.cost_usd or 0.0 for usage in record.usage.values())
        tokens = sum(usage.prompt + usage.completion for usage in record.usage.values())
        self._of_cell[id(job.cell)].append((usd, tokens))

    def fits(self, job: Job, running: Collection[Job]) -> bool:
        """Say whether the running cases and one more fit; as long as nothing is known, one runs alone."""
        if not self.meter.is_limited:
            return True
        if not self._of_cell:
            return not running and self.meter.has_room()
        dearest = [self._highest_cost(one) for one in (*running, job)]
        return self.meter.has_room(sum(usd for usd, _ in dearest), sum(tokens for _, tokens in dearest))

    def _highest_cost(self, job: Job) -> tuple[float, float]:
        """The most that a case like it cost; not the mean, as the cheapest of those under way end first."""
        known = self._of_cell.get(id(job.cell)) or [one for some in self._of_cell.values() for one in some]
        return max(usd for usd, _ in known), max(tokens for _, tokens in known)
