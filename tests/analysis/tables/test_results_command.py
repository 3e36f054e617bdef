"""`agentsys results`: formats, marks, footnotes and hostile names."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import typer
from command_output import command_output
from rich.console import Console
from stored_cases import case_of, row, span, store_own, store_published
from typer.testing import CliRunner

from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.analysis.tables.results_document import make_results_document, make_results_output
from agentsys.analysis.tables.table_document import (
    OutputFormat,
    escape_for_csv,
    escape_for_latex,
    escape_for_markdown,
    make_plain,
)
from agentsys.analysis.tables.write_terminal import arrange_for_terminal
from agentsys.cli.cli_output import render_output
from agentsys.cli.results_command import results_command
from agentsys.records.case_reader import LoadedCases, read_cases
from agentsys.records.schema import Exposure

_HEADER = "benchmark,version,model,defense,attack,suite,metric,"
_HEADER += "value_fraction,ci_low_fraction,ci_high_fraction,n,errors,verdict,reasons,mean,"
_HEADER += "bound_low_fraction,bound_high_fraction,undecided"
_NASTY = "a|b`c`<b>&\n[red]x[/red]_%$#{}~^\\\x1b[2J\u202e"


def _shown(found: ResultFrame, width: int = 160) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(arrange_for_terminal(make_results_document(found)), crop=False)
    render_output = console.file
    assert isinstance(render_output, io.StringIO)
    return render_output.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Benign and attacked cases of a simulated model, with an error and exposure."""
    for suite in ("banking", "slack"):
        for user in ("user_task_0", "user_task_1"):
            fields = {"suite": suite, "user_task_id": user, "model": "sim"}
            store_own(tmp_path, case_of(attack="none", **fields), simulated=True)
            for goal in ("injection_task_0", "injection_task_1"):
                exposure = Exposure(exposed_raw=goal == "injection_task_0")
                case = case_of(injection_task_id=goal, **fields)
                store_own(tmp_path, case, simulated=True, exposure=exposure)
    late = case_of(model="sim", user_task_id="user_task_7")
    store_own(tmp_path, late, simulated=True, status="error", error_kind="context_length")
    return tmp_path


def test_csv_has_exactly_the_documented_columns_and_marks_simulated_models(folder: Path) -> None:
    text = command_output("results", folder, "--format", "csv")
    assert text.splitlines()[0] == _HEADER
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {line["model"] for line in rows} == {"sim (simulated)"}
    asr = next(line for line in rows if (line["metric"], line["suite"]) == ("targeted_asr", "banking"))
    assert (asr["value_fraction"], asr["n"], asr["errors"]) == ("0.0", "4", "1")


def test_json_is_the_long_form_with_null_for_what_is_undefined_which_is_nan_in_csv(tmp_path: Path) -> None:
    store_published(tmp_path)
    rows = json.loads(command_output("results", tmp_path, "--format", "json"))
    assert list(rows[0]) == _HEADER.split(",")
    quality = [line["value_fraction"] for line in rows if line["metric"] == "defense_quality"]
    assert quality == [None] * 3
    assert ",defense_quality,,,,1,0" in command_output("results", tmp_path, "--format", "csv")


@pytest.mark.parametrize("form", [OutputFormat.CSV, OutputFormat.JSON])
def test_other_programs_get_the_same_numbers_without_notes_being_made(
    folder: Path, form: OutputFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = render_output(make_results_output(ResultFrame(read_cases([folder]))), form).decode()
    for name in ("results_document.write_report_notes", "result_frame._compute_unexposed_shares"):
        monkeypatch.setattr(f"agentsys.analysis.tables.{name}", lambda *_, **__: pytest.fail("made"))
    assert command_output("results", folder, "--format", form.value) == whole


def test_agentdojos_error_rule_is_an_option(folder: Path) -> None:
    text = command_output("results", folder, "--format", "csv", "--errors", "agentdojo")
    rows = list(csv.DictReader(io.StringIO(text)))
    asr = next(line for line in rows if (line["metric"], line["suite"]) == ("targeted_asr", "banking"))
    assert (asr["value_fraction"], asr["n"], asr["errors"]) == ("0.2", "5", "1")


def test_footnotes_name_what_was_left_out(tmp_path: Path) -> None:
    store_own(tmp_path / "a", case_of())
    store_own(tmp_path / "b", case_of())
    store_own(tmp_path / "a", case_of(attack="none", user_task_id="injection_task_1"))
    notes = " ".join(tuple(write_report_notes(ResultFrame(read_cases([tmp_path / "a", tmp_path / "b"])))))
    assert "Left out: 1 run of injection tasks" in notes
    assert "Left out: 1 file of cases that are stored more than once" in notes
    assert f"{tmp_path / 'b' / case_of().key} (counted: {tmp_path / 'a' / case_of().key})" in notes


def test_footnote_says_where_overall_covers_fewer_suites() -> None:
    cases = (row(), row(suite="slack"), row(defense="none"))
    notes = tuple(write_report_notes(ResultFrame(LoadedCases(cases))))
    assert any(
        note.endswith(": none / important_instructions: overall covers banking only.") for note in notes
    )


def test_unexposed_share_leaves_out_errors_and_unknown_exposure() -> None:
    cases = [row(user_task_id=f"user_task_{u}", exposed_raw=u > 0) for u in range(4)]
    lost = row(user_task_id="user_task_9", exposed_raw=False, status="error")
    found = ResultFrame(LoadedCases((*cases, lost, row(defense="none"))))
    assert list(found.unexposed.values()) == [25.0]


def _nasty_report() -> ResultFrame:
    cases = [row(defense=_NASTY, attack=_NASTY, suite=_NASTY, model=_NASTY, version=_NASTY)]
    lost = row(defense=_NASTY, suite="b", status="error", error_kind=_NASTY)
    return ResultFrame(LoadedCases((*cases, lost)), ErrorRule.REPORT)


def _text(found: ResultFrame, form: OutputFormat) -> str:
    return render_output(make_results_output(found), form).decode()


@pytest.mark.parametrize("form", list(OutputFormat))
def test_hostile_names_steer_no_terminal(form: OutputFormat) -> None:
    text = _text(_nasty_report(), form)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_markup_in_names_is_text() -> None:
    assert escape_for_markdown("a|b`<i>&*x*") == "a\\|b\\`&lt;i&gt;&amp;\\*x\\*"
    assert escape_for_latex("a&b%$#_{}") == "a\\&b\\%\\$\\#\\_\\{\\}"
    assert escape_for_latex("~^\\") == "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", " =x", "\t=x"])
def test_names_that_a_spreadsheet_would_run_are_neutralised(name: str) -> None:
    cell = escape_for_csv(name)
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "\t"))
    text = _text(ResultFrame(LoadedCases((row(model=name),))), OutputFormat.CSV)
    (line,) = csv.reader([text.splitlines()[1]])
    assert line[2] == cell


def test_plain_keeps_what_is_visible() -> None:
    assert make_plain("gpt-4o é 漢 [x]") == "gpt-4o é 漢 [x]"
    assert make_plain("a\r\n\u2028\ud800b") == "a????b"


def test_json_survives_a_lone_surrogate() -> None:
    found = ResultFrame(LoadedCases((row(model="x\ud800"),)))
    assert json.loads(_text(found, OutputFormat.JSON))[0]["model"] == "x?"


def test_a_narrow_terminal_cuts_neither_names_nor_intervals() -> None:
    long = "important_instructions_no_model_name"
    cases = [row(attack=long, user_task_id=f"user_task_{u}", injection_success=True) for u in range(3)]
    benign = [row(attack="none", user_task_id=f"user_task_{u}") for u in range(3)]
    shown = _shown(ResultFrame(LoadedCases((*cases, *benign))), width=80)
    assert "…" not in shown
    assert "29.2-100" in shown


def test_skipped_files_are_named_on_stderr_and_never_in_the_output(folder: Path) -> None:
    (folder / "bad.json").write_text("{")
    app = typer.Typer()
    app.command()(results_command)
    outcome = CliRunner().invoke(app, [str(folder), "--format", "json"], catch_exceptions=False)
    assert json.loads(outcome.stdout)
    assert "bad.json: not valid JSON" in outcome.stderr


def test_stored_records_of_a_preset_that_is_gone_are_still_read(tmp_path: Path) -> None:
    judged = span(0, None, "validate", name="send_money", decision={"allow": False, "by": "rules"})
    store_own(tmp_path, case_of(defense="agentsys_hybrid"), spans=[judged], config_hash="a" * 64)
    read = read_cases([tmp_path])
    assert [case.defense for case in read.cases] == ["agentsys_hybrid"] and not read.skipped_files
    assert "agentsys_hybrid,important_instructions,banking,targeted_asr" in command_output(
        "results", tmp_path, "--format", "csv"
    )
