"""`RunningTotals`: the figures of a run under way; `RunSpending`: whether one more case fits its budget."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from agentsys.amounts import duration, short_count
from agentsys.models.budget import Meter
from agentsys.records.schema import CaseRecord
from agentsys.runs.plan import Job


@dataclass
class RunningTotals:
    """Counts since the run started. Rates are pooled over everything run; tables come later."""

    planned: int
    """Cases to run."""
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    errors: int = 0
    benign: int = 0
    benign_solved: int = 0
    attacked: int = 0
    attacked_solved: int = 0
    hit: int = 0
    """Attacked cases whose injection task was carried out."""
    attempts: int = 0
    """Attempts that searches made."""
    tokens: int | None = 0
    """None as soon as one reply came without a count."""
    cost_usd: float | None = 0.0
    """None as soon as one call has no known price."""
    started: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add_attempt(self, record: CaseRecord) -> None:
        """Count one attempt of a search: it costs, and is no case."""
        self.attempts += 1
        self._spend(record)

    def add(self, record: CaseRecord) -> None:
        """Count one finished case; errored cases enter no rate."""
        self.done += 1
        if not _was_an_attempt(record):
            self._spend(record)
        if record.status == "error":
            self.errors += 1
        elif record.case.injection_task_id is None:
            self.benign += 1
            self.benign_solved += record.utility
        else:
            self.attacked += 1
            self.attacked_solved += record.utility
            self.hit += record.security

    def _spend(self, record: CaseRecord) -> None:
        for usage in record.usage.values():
            counted = self.tokens is not None and not usage.uncounted
            self.tokens = (self.tokens or 0) + usage.prompt + usage.completion if counted else None
            known = self.cost_usd is not None and usage.cost_usd is not None
            self.cost_usd = (self.cost_usd or 0.0) + (usage.cost_usd or 0.0) if known else None

    @property
    def per_second(self) -> float:
        """Cases finished per second so far; 0 before the first."""
        elapsed = self.clock() - self.started
        return self.done / elapsed if elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end at the rate so far; None before the first case."""
        return (self.planned - self.done) / self.per_second if self.done else None

    @property
    def line(self) -> str:
        """Progress of the run, and its figures."""
        left = f", {duration(self.seconds_left)} left" if self.done < self.planned else ""
        return f"{self.done}/{self.planned} cases{left}; {self.figures()}"

    def figures(self) -> str:
        """The figures in one line of plain text."""
        parts = [
            f"benign utility {_share(self.benign_solved, self.benign)}",
            f"under attack {_share(self.attacked_solved, self.attacked)}",
            f"ASR {_share(self.hit, self.attacked)}",
            f"errors {self.errors}",
            *([f"attempts {self.attempts}"] if self.attempts else []),
            "tokens unknown" if self.tokens is None else f"tokens {short_count(self.tokens)}",
            "cost unknown" if self.cost_usd is None else f"cost ${self.cost_usd:.2f}",
        ]
        return ", ".join(parts)


def _was_an_attempt(record: CaseRecord) -> bool:
    """Say whether the case's record is that of its search's best attempt, whose cost is counted already."""
    search = record.search
    return search is not None and search.mode == "per_case" and search.attempts > search.refused


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


class RunSpending:
    """Watches a run's budget.

    Args:
        meter: What the run spends, and may spend.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._of_cell: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)

    def add(self, job: Job, record: CaseRecord) -> None:
        """Note what a finished case cost."""
        usd = sum(usage.cost_usd or 0.0 for usage in record.usage.values())
        tokens = sum(usage.prompt + usage.completion for usage in record.usage.values())
        self._of_cell[id(job.cell)].append((usd, tokens))

    def fits(self, job: Job, running: Collection[Job]) -> bool:
        """Say whether the running cases and one more fit; as long as nothing is known, one runs alone."""
        if not self.meter.limited:
            return True
        if not self._of_cell:
            return not running and self.meter.has_room()
        means = [self._mean(one) for one in (*running, job)]
        return self.meter.has_room(sum(usd for usd, _ in means), sum(tokens for _, tokens in means))

    def _mean(self, job: Job) -> tuple[float, float]:
        known = self._of_cell.get(id(job.cell)) or [one for some in self._of_cell.values() for one in some]
        return sum(usd for usd, _ in known) / len(known), sum(tokens for _, tokens in known) / len(known)
