"""Every command that shows numbers writes them in every format, to the screen, a pipe or a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_cases import row
from typer.testing import CliRunner

from agentsys.analysis.tables.results_document import results_output
from agentsys.analysis.tables.results_report import build_report
from agentsys.analysis.tables.table_document import Document
from agentsys.analysis.tables.table_writers import Output, OutputFormat, records_of, render_output
from agentsys.cli import app
from agentsys.cli.cli_output import write_output
from agentsys.records.case_reader import LoadedCases

COMMANDS = ("results", "table", "compare", "rescore", "audit")


def output() -> Output:
    return results_output(build_report(LoadedCases((row(),)), replicates=5))


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
    empty = Output("t", Document([], ()), records_of(OneNumber, ()), nested)
    stored = json.loads(render_output(empty, OutputFormat.JSON))
    assert stored == {"tasks": [{"name": "a?[2J", "share": None}], "pair": ["b?", None]}


class OneNumber:
    """A row with one column."""

    n: int
