"""The live display of a run, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agentsys.cli.run_progress import CellTotals, LiveProgress, PlainProgress, RunningTotals
from agentsys.models.budget import Meter
from agentsys.runs.plan import CellLabels


def drawn(width: int) -> list[str]:
    """What a live display of a run under way looks like."""
    cells = {
        CellLabels("simulated", defense, attack): CellTotals(48, done, solved=done, rated=done, hit=done // 2)
        for defense, done in (("none", 48), ("prompt_sandwiching", 12), ("agentsys", 0))
        for attack in ("none", "important_instructions")
    }
    console = Console(file=io.StringIO(), force_terminal=False, width=width)
    meter = Meter(retries=3, waiting=1)
    totals = RunningTotals(288, cells=cells, done=120)
    console.print(LiveProgress(totals, Console(file=io.StringIO(), width=width), meter)._render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_each_cell_has_a_bar_with_its_counts_and_rates(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    assert "3 retries, 1 waiting" in " ".join(" ".join(lines).split())
    (line,) = [line for line in lines if "12/48" in line and "ASR" in line]
    assert "ASR 50.0%, utility 100.0%" in line and (width < 80 or "prompt_sandwiching / attacked" in line)
    assert sum("waiting" in line and "0/48" in line for line in lines) == 2


def test_without_a_terminal_a_line_says_all_that_a_terminal_shows() -> None:
    console = Console(file=io.StringIO(), width=200)
    cells = {CellLabels("simulated", "none", "direct"): CellTotals(4, 2, rated=2, hit=1)}
    with PlainProgress(RunningTotals(4, cells=cells, done=2), console, Meter(retries=1)) as progress:
        progress._last -= 61
        progress.tick()
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert said.startswith("2/4 cases, ") and "1 retry, 0 waiting; ASR none 50.0%, errors 0" in said


def test_the_live_display_opens_and_says_why_a_run_stops() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with LiveProgress(RunningTotals(3), console) as progress:
        progress.tick()
        progress.stopping("Ctrl-C", 2)
    assert isinstance(console.file, io.StringIO)
    assert "finishing 2 cases" in console.file.getvalue()
