"""Progress of a run: its totals so far, a live display on a terminal, a plain line a minute elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentsys.attacks.search_options import PER_CASE
from agentsys.base.grouping import abbreviate_count, format_count, format_duration
from agentsys.cli.cli_output import print_to_console
from agentsys.cli.terminal import escape_to_line
from agentsys.models.budget import Meter
from agentsys.records.case_row import NO_ATTACK
from agentsys.records.schema import CaseRecord
from agentsys.runs.cell import CellLabels, JobList
from agentsys.runs.run_totals import Listener

LINE_EVERY_S = 60.0


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
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    @classmethod
    def of_jobs(cls, jobs: JobList) -> RunningTotals:
        """Totals of a run that is about to start."""
        planned = jobs.count_by_labels()
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
        rates = [f"ASR {name} {asr}" for name, asr in self.compute_asr_by_defense().items()]
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

    def compute_asr_by_defense(self) -> dict[str, str]:
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


def _write_joined(processes: Sequence[int]) -> str:
    who = f"process {processes[0]}" if len(processes) == 1 else f"{len(processes)} processes"
    return f"Already at work in this folder: {who}. This run helps: each case is run once, by one of them."


def _write_stopping(why: str, running: int) -> str:
    left = format_count(running, "case")
    return f"stopping ({escape_to_line(why)}): finishing {left}; Ctrl-C again drops them"


class _CountingListener(Listener):
    def __init__(self, totals: RunningTotals, console: Console, meter: Meter | None = None) -> None:
        self._totals, self._console, self._meter = totals, console, meter

    def on_case_stored(self, record: CaseRecord) -> None:
        """Count a case."""
        self._totals.add(record)

    def on_attempt_stored(self, record: CaseRecord) -> None:
        """Count an attempt of a search."""
        self._totals.add_attempt(record)

    def on_case_stored_elsewhere(self, labels: CellLabels) -> None:
        """One case less to run."""
        self._totals.planned -= 1
        self._totals.cells[labels].planned -= 1


class LiveProgress(_CountingListener):
    """A bar per cell and the running figures, redrawn in place."""

    def __init__(self, totals: RunningTotals, console: Console, meter: Meter | None = None) -> None:
        super().__init__(totals, console, meter)
        # Before `Live`, which draws at once.
        self._note = ""
        self._live = Live(
            console=console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            get_renderable=self._render,
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._live.stop()

    def on_processes_joined(self, processes: Sequence[int]) -> None:
        """Say that the work is shared."""
        self._live.console.print(_write_joined(processes), markup=False, highlight=False, soft_wrap=True)

    def on_stop(self, why: str, running: int) -> None:
        """Say that the run is ending early."""
        self._note = _write_stopping(why, running)

    def _render(self) -> Group:
        head = Text(f"{self._totals.progress}{_format_waiting(self._meter)}")
        note = [Text(text, style="yellow") for text in (_write_last_error(self._meter), self._note) if text]
        bars = [self._render_bars()] if self._totals.cells else []
        return Group(head, *bars, Text(self._totals.spending_text), *note)

    def _render_bars(self) -> Table:
        """A line per cell: those under way first, then those that wait, then those that are done."""
        done = {name: cell.done >= cell.planned for name, cell in self._totals.cells.items()}
        cells = sorted(self._totals.cells.items(), key=lambda item: (done[item[0]], not item[1].done))
        label = _make_labeller(self._totals.cells)
        rows = [
            (cell, f"{cell.done}/{cell.planned}", escape_to_line(label(name)), _format_rates(name, cell))
            for name, cell in cells[:MAX_CELLS]
        ]
        counts, rates = max(len(row[1]) for row in rows), max(len(row[3]) for row in rows)
        # Counts and rates are whole; a name gives way where the terminal is too narrow for all.
        left = max(self._console.width - BAR_WIDTH - counts - rates - 3, 8)
        table = Table.grid(padding=(0, 1))
        table.add_column(width=BAR_WIDTH)
        table.add_column(justify="right", width=counts)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=left)
        table.add_column(width=rates)
        for cell, count, name, came in rows:
            bar = ProgressBar(total=max(cell.planned, 1), completed=cell.done, width=BAR_WIDTH)
            table.add_row(bar, count, Text(name), Text(came))
        if len(cells) > MAX_CELLS:
            table.add_row("", "", f"and {format_count(len(cells) - MAX_CELLS, 'more cell')}", "")
        return table


MAX_CELLS = 12
"""Cells with a line of their own: more would not fit a terminal's height."""
BAR_WIDTH = 10
"""Columns of a bar."""


def _make_labeller(cells: Iterable[CellLabels]) -> Callable[[CellLabels], str]:
    """How cells are named beside each other: by what not all of them have in common."""
    listed = list(cells)
    models = {name.model for name in listed}
    attacks = {name.attack for name in listed} - {NO_ATTACK}

    def label(name: CellLabels) -> str:
        kind = "attacked" if len(attacks) == 1 else name.attack
        parts = (
            name.model if len(models) > 1 else "",
            name.defense,
            "benign" if name.attack == NO_ATTACK else kind,
        )
        return " / ".join(part for part in parts if part)

    return label


def _format_rates(name: CellLabels, cell: CellTotals) -> str:
    if not cell.done:
        return "waiting" if cell.planned else "run by other processes"
    errors = f", {format_count(cell.errors, 'error')}" if cell.errors else ""
    hit = f"ASR {format_share(cell.hit, cell.rated)}, " if name.attack != NO_ATTACK else ""
    return f"{hit}utility {format_share(cell.solved, cell.rated)}{errors}"


def _format_waiting(meter: Meter | None) -> str:
    if meter is None or not (meter.retries or meter.waiting):
        return ""
    return f", {format_count(meter.retries, 'retry', 'retries')}, {meter.waiting} waiting"


def _write_last_error(meter: Meter | None) -> str:
    return f"last error: {escape_to_line(meter.last_error)}" if meter and meter.last_error else ""


class PlainProgress(_CountingListener):
    """A line of text now and then, for logs and pipes."""

    def __enter__(self) -> PlainProgress:
        self._last = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        """Nothing: the run's last lines are said when its table is shown."""

    def on_processes_joined(self, processes: Sequence[int]) -> None:
        """Say that the work is shared."""
        self._print_text(_write_joined(processes))

    def on_tick(self) -> None:
        """Print a line if a minute has passed."""
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last, totals = time.monotonic(), self._totals
            parts = (f"{totals.progress}{_format_waiting(self._meter)}", totals.format_figures())
            self._print_text("; ".join(filter(None, (*parts, _write_last_error(self._meter)))))

    def on_stop(self, why: str, running: int) -> None:
        """Say that the run is ending early."""
        self._print_text(_write_stopping(why, running))

    def _print_text(self, line: str) -> None:
        print_to_console(self._console, line, "  ")


class VerboseProgress(PlainProgress):
    """Also a line for every case that ends."""

    def on_case_stored(self, record: CaseRecord) -> None:
        """Count a case and tell what came of it."""
        super().on_case_stored(record)
        case = record.case
        task = "/".join(filter(None, (case.user_task_id, case.injection_task_id)))
        self._print_text(
            escape_to_line(
                f"{case.model} / {case.defense} / {case.attack}: {case.suite} {task}: {_format_case(record)}"
            )
        )


def _format_case(record: CaseRecord) -> str:
    if record.status == "error":
        return f"error ({record.error_kind})"
    solved = f"user task {'solved' if record.utility else 'not solved'}"
    if record.case.injection_task_id is None:
        return solved
    return f"{solved}, injection {'carried out' if record.security else 'not carried out'}"
