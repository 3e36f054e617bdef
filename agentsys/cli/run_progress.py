"""Progress of a run: a live display on a terminal, a plain line a minute elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import print_to_console
from agentsys.cli.terminal import escape_to_line
from agentsys.models.budget import Meter
from agentsys.records.case_row import NO_ATTACK
from agentsys.records.schema import CaseRecord
from agentsys.runs.run_totals import CellLabels, CellTotals, RunningTotals, format_share

LINE_EVERY_S = 60.0


def _joined_text(processes: Sequence[int]) -> str:
    who = f"process {processes[0]}" if len(processes) == 1 else f"{len(processes)} processes"
    return f"Already at work in this folder: {who}. This run helps: each case is run once, by one of them."


def _stopping_text(why: str, running: int) -> str:
    left = format_count(running, "case")
    return f"stopping ({escape_to_line(why)}): finishing {left}; Ctrl-C again drops them"


class _CountingListener:
    """Counts what ends, whichever way that is shown."""

    def __init__(self, totals: RunningTotals, console: Console, meter: Meter | None = None) -> None:
        self._totals, self._console, self._meter = totals, console, meter

    def finished(self, record: CaseRecord) -> None:
        """Count a case."""
        self._totals.add(record)

    def attempted(self, record: CaseRecord) -> None:
        """Count an attempt of a search."""
        self._totals.add_attempt(record)

    def elsewhere(self) -> None:
        """One case less to run."""
        self._totals.planned -= 1


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

    def joined(self, processes: Sequence[int]) -> None:
        """Say that the work is shared."""
        self._live.console.print(_joined_text(processes), markup=False, highlight=False, soft_wrap=True)

    def tick(self) -> None:
        """Nothing to do: the display redraws itself."""

    def stopping(self, why: str, running: int) -> None:
        """Say that the run is ending early."""
        self._note = _stopping_text(why, running)

    def _render(self) -> Group:
        head = Text(f"{self._totals.progress}{_format_waiting(self._meter)}")
        note = [Text(self._note, style="yellow")] if self._note else []
        bars = [self._render_bars()] if self._totals.cells else []
        return Group(head, *bars, Text(self._totals.spending_text), *note)

    def _render_bars(self) -> Table:
        """A line per cell: those under way first, then those that wait, then those that are done."""
        cells = sorted(self._totals.cells.items(), key=lambda item: _display_rank(item[1]))
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


def _display_rank(cell: CellTotals) -> int:
    """Under way, not begun, done."""
    return 2 if cell.done >= cell.planned else 0 if cell.done else 1


def _format_rates(name: CellLabels, cell: CellTotals) -> str:
    """What a cell's cases came to so far."""
    if not cell.done:
        return "waiting"
    errors = f", {format_count(cell.errors, 'error')}" if cell.errors else ""
    hit = f"ASR {format_share(cell.hit, cell.rated)}, " if name.attack != NO_ATTACK else ""
    return f"{hit}utility {format_share(cell.solved, cell.rated)}{errors}"


def _format_waiting(meter: Meter | None) -> str:
    """Retries so far, and who waits for one now; nothing where there were none."""
    if meter is None or not (meter.retries or meter.waiting):
        return ""
    return f", {format_count(meter.retries, 'retry', 'retries')}, {meter.waiting} waiting"


class PlainProgress(_CountingListener):
    """A line of text now and then, for logs and pipes."""

    def __enter__(self) -> PlainProgress:
        self._last = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        """Nothing: the run's last lines are said when its table is shown."""

    def joined(self, processes: Sequence[int]) -> None:
        """Say that the work is shared."""
        self._print_text(_joined_text(processes))

    def tick(self) -> None:
        """Print a line if a minute has passed."""
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last, totals = time.monotonic(), self._totals
            self._print_text(f"{totals.progress}{_format_waiting(self._meter)}; {totals.format_figures()}")

    def stopping(self, why: str, running: int) -> None:
        """Say that the run is ending early."""
        self._print_text(_stopping_text(why, running))

    def _print_text(self, line: str) -> None:
        print_to_console(self._console, line, "  ")


class VerboseProgress(PlainProgress):
    """Also a line for every case that ends."""

    def finished(self, record: CaseRecord) -> None:
        """Count a case and tell what came of it."""
        super().finished(record)
        case = record.case
        task = "/".join(filter(None, (case.user_task_id, case.injection_task_id)))
        self._print_text(
            escape_to_line(
                f"{case.model} / {case.defense} / {case.attack}: {case.suite} {task}: {_format_case(record)}"
            )
        )


def _format_case(record: CaseRecord) -> str:
    """What became of a case, in words."""
    if record.status == "error":
        return f"error ({record.error_kind})"
    solved = f"user task {'solved' if record.utility else 'not solved'}"
    if record.case.injection_task_id is None:
        return solved
    return f"{solved}, injection {'carried out' if record.security else 'not carried out'}"
