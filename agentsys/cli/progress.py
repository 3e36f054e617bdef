"""Progress of a run: a live display on a terminal, a plain line a minute elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from agentsys.amounts import counted, duration
from agentsys.cli.terminal import one_line
from agentsys.records.schema import CaseRecord
from agentsys.runs.totals import RunningTotals

LINE_EVERY_S = 60.0


def _joined(processes: Sequence[int]) -> str:
    who = (
        "process " + ", ".join(map(str, processes[:8]))
        if len(processes) == 1
        else f"{len(processes)} processes"
    )
    return f"Already at work in this folder: {who}. This run helps: each case is run once, by one of them."


class LiveProgress:
    """A progress bar and the running figures, redrawn in place."""

    def __init__(self, totals: RunningTotals, console: Console) -> None:
        self._totals = totals
        # Before `Live`, which draws at once.
        self._note = ""
        self._live = Live(
            console=console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            get_renderable=self._drawn,
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._live.stop()

    def finished(self, record: CaseRecord) -> None:
        """Count a case."""
        self._totals.add(record)

    def attempted(self, record: CaseRecord) -> None:
        """Count an attempt of a search."""
        self._totals.add_attempt(record)

    def joined(self, processes: Sequence[int]) -> None:
        """Say that the work is shared."""
        self._live.console.print(_joined(processes), markup=False, highlight=False, soft_wrap=True)

    def elsewhere(self) -> None:
        """One case less to run."""
        self._totals.planned -= 1

    def tick(self) -> None:
        """Nothing to do: the display redraws itself."""

    def stopping(self, why: str, running: int) -> None:
        """Say that the run is ending early."""
        self._note = (
            f"stopping ({one_line(why)}): finishing {counted(running, 'case')}; Ctrl-C again drops them"
        )

    def _drawn(self) -> Group:
        totals = self._totals
        bar = ProgressBar(total=max(totals.planned, 1), completed=totals.done, width=40)
        head = Text(
            f"{totals.done}/{totals.planned} cases, {totals.per_second:.1f} a second, "
            f"{duration(totals.seconds_left)} left"
        )
        lines: list[ProgressBar | Text] = [bar, head, Text(totals.figures())]
        return Group(*lines, *([Text(self._note, style="yellow")] if self._note else []))


class PlainProgress:
    """A line of text now and then, for logs and pipes."""

    def __init__(self, totals: RunningTotals, console: Console) -> None:
        self._totals, self._console = totals, console
        self._last = time.monotonic()

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        """Nothing: the run's last lines are said when its table is shown."""

    def finished(self, record: CaseRecord) -> None:
        """Count a case."""
        self._totals.add(record)

    def attempted(self, record: CaseRecord) -> None:
        """Count an attempt of a search."""
        self._totals.add_attempt(record)

    def joined(self, processes: Sequence[int]) -> None:
        """Say that the work is shared."""
        self._print(_joined(processes))

    def elsewhere(self) -> None:
        """One case less to run."""
        self._totals.planned -= 1

    def tick(self) -> None:
        """Print a line if a minute has passed."""
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._say()

    def stopping(self, why: str, running: int) -> None:
        """Say that the run is ending early."""
        self._print(
            f"stopping ({one_line(why)}): finishing {counted(running, 'case')}; Ctrl-C again drops them"
        )

    def _say(self) -> None:
        self._print(self._totals.line)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
