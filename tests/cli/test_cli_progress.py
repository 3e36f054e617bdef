"""The live display of a run, on a terminal and elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from agentsys.cli.progress import LiveProgress
from agentsys.runs.totals import RunningTotals


def test_the_live_display_opens_and_says_why_a_run_stops() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with LiveProgress(RunningTotals(3), console) as progress:
        progress.tick()
        progress.stopping("Ctrl-C", 2)
    assert isinstance(console.file, io.StringIO)
    assert "finishing 2 cases" in console.file.getvalue()
