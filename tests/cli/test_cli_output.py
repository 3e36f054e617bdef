"""Commands that show numbers write every format to screen, pipe and file; the live display of a run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from needs_guest import needs_guest
from rich.console import Console
from stored_cases import row
from typer.testing import CliRunner

from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.results_document import make_results_output
from agentsys.analysis.tables.table_document import Document, Output, OutputFormat, make_long_form
from agentsys.cli import app
from agentsys.cli.cli_output import render_output, write_output
from agentsys.cli.run_progress import CellTotals, LiveProgress, PlainProgress, RunningTotals
from agentsys.models.budget import Meter
from agentsys.records.case_reader import LoadedCases
from agentsys.runs.cell import CellLabels

COMMANDS = (
    "results",
    "table",
    "compare",
    *(pytest.param(name, marks=needs_guest("audit")) for name in ("rescore", "audit")),
)


def output() -> Output:
    return make_results_output(ResultFrame(LoadedCases((row(),))))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_offers_every_format(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert "|".join(OutputFormat) in shown.stdout.replace("\n", "")


@pytest.mark.parametrize("form", list(OutputFormat))
def test_a_file_holds_what_the_screen_would_show(tmp_path: Path, form: OutputFormat) -> None:
    out = tmp_path / "new" / "results"
    write_output(output(), form, out)
    assert out.read_bytes() == render_output(output(), form)
    assert len(out.read_bytes()) > 300


def test_what_json_holds_is_plain_however_deep() -> None:
    nested = {"tasks": [{"name": "a\x1b[2J", "share": float("nan")}], "pair": ("b\u202e", None)}
    empty = Output("t", Document([], ()), make_long_form(OneNumber, ()), nested)
    stored = json.loads(render_output(empty, OutputFormat.JSON))
    assert stored == {"tasks": [{"name": "a?[2J", "share": None}], "pair": ["b?", None]}


class OneNumber:
    """A row with one column."""

    n: int


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
        progress.on_tick()
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert said.startswith("2/4 cases, ") and "1 retry, 0 waiting; ASR none 50.0%, errors 0" in said


def test_cases_that_other_processes_ran_are_not_waited_for() -> None:
    ours, theirs = CellLabels("simulated", "none", "direct"), CellLabels("simulated", "agentsys", "direct")
    cells = {ours: CellTotals(1, 1, rated=1, seconds=9.0), theirs: CellTotals(1)}
    progress = LiveProgress(RunningTotals(2, cells=cells, done=1), Console(file=io.StringIO(), width=100))
    assert progress._totals.seconds_left
    progress.on_case_stored_elsewhere(theirs)
    assert (progress._totals.planned, progress._totals.seconds_left) == (1, 0.0)
    console = Console(file=io.StringIO(), width=100)
    console.print(progress._render())
    assert isinstance(console.file, io.StringIO)
    assert "waiting" not in console.file.getvalue()


def test_the_live_display_opens_and_says_why_a_run_stops() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with LiveProgress(RunningTotals(3), console) as progress:
        progress.on_tick()
        progress.on_stop("Ctrl-C", 2)
    assert isinstance(console.file, io.StringIO)
    assert "finishing 2 cases" in console.file.getvalue()
