"""Names for showing: every table and figure has them, what other programs read does not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from matplotlib.text import Text
from stored_cases import case_of, row, store_own
from typer.testing import CliRunner

from agentsys.analysis.figures.catalog import FIGURES, make_figure
from agentsys.analysis.figures.mark import RUNS
from agentsys.analysis.shown_document import as_shown
from agentsys.analysis.tables.document import Document, Grid, cells
from agentsys.analysis.tables.output import LongForm, Output
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow
from agentsys.records.names_file import BESIDE, Names
from agentsys.records.shown_names import ShownNames

SHOWN = ShownNames(
    defenses={"none": "No defense", "agentsys": "AgentSys (ours)"},
    models={"gpt-4o-mini": "GPT-4o mini", "m": "Model M"},
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two defenses of one model, benign and attacked, and the file of names beside them."""
    folder = tmp_path_factory.mktemp("runs")
    for defense in ("none", "agentsys"):
        for task in ("user_task_0", "user_task_1"):
            about = {"defense": defense, "user_task_id": task, "model": "gpt-4o-mini"}
            store_own(folder, case_of(attack="none", injection_task_id=None, **about))
            store_own(folder, case_of(**about), security=defense == "none")
    (folder / "names.yaml").write_text("shown: " + json.dumps(SHOWN.model_dump()), encoding="utf-8")
    return folder


def told(runs: Path, *command: str) -> str:
    asked = [*command, str(runs), "--names", str(runs / "names.yaml")]
    outcome = CliRunner().invoke(app, asked, catch_exceptions=False, env={"COLUMNS": "250"})
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


TABLES = [
    ["results"],
    ["results", "--full"],
    ["compare"],
    ["measures"],
    *(["table", str(number)] for number in range(2, 8)),
]


@pytest.mark.parametrize("command", TABLES, ids=" ".join)
@pytest.mark.parametrize("form", ["table", "markdown", "latex", "html"])
def test_every_table_has_the_names_shown(runs: Path, command: list[str], form: str) -> None:
    if form != "table" and command != ["results"]:
        pytest.skip("one way of writing for all")
    found = told(runs, *command, "--format", form)
    assert "AgentSys (ours)" in found.replace("\\", "")
    as_stored = re.compile(r"(\S.*?\s{2,})?(none|agentsys)\s{2,}")
    assert not any(as_stored.match(line) for line in found.splitlines())


@pytest.mark.parametrize("command", [["results"], ["compare"], ["measures"], ["table", "2"]], ids=" ".join)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_other_programs_read_the_names_of_the_runs(runs: Path, command: list[str], form: str) -> None:
    found = told(runs, *command, "--format", form)
    assert "agentsys" in found
    assert "AgentSys (ours)" not in found


def _cases(benchmark: str, attack: str) -> list[CaseRow]:
    about = {"benchmark": benchmark, "model": "m", "prompt_tokens": 1000, "completion_tokens": 10}
    lengths = {"ground_truth_length": 2, "trajectory_length": 2, "tokens_by_role": {"agent": 1010}}
    return [
        row(
            defense=defense,
            attack=kind,
            suite=suite,
            user_task_id=f"user_task_{task}",
            injection_success=None if kind == "none" else task == 1,
            injection_round=None if kind == "none" else 1,
            **about,
            **lengths,
        )
        for defense in ("none", "agentsys")
        for suite in ("a", "b")
        for task in range(4)
        for kind in ("none", attack)
    ]


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_has_the_names_shown_and_its_looks_stay(name: str) -> None:
    kind = FIGURES[name]
    cases = _cases(kind.benchmark, "opi" if name == "2" else "important_instructions")
    drawn = make_figure(kind, cases, shown=SHOWN)
    stored = make_figure(kind, cases)
    words = " ".join(text.get_text() for text in drawn.figure.findobj(Text))
    assert "No defense" in words and "AgentSys (ours)" in words
    assert "Model M" in words
    ours = {mark.series: mark.name for mark in drawn.marks if mark.origin == RUNS}
    assert ours == {"none": "No defense", "agentsys": "AgentSys (ours)"}
    assert [mark.series for mark in drawn.marks] == [mark.series for mark in stored.marks]
    colours = [
        [line.get_color() for axes in one.figure.axes for line in axes.lines] for one in (drawn, stored)
    ]
    assert colours[0] == colours[1]


def test_the_command_draws_with_them(runs: Path, tmp_path: Path) -> None:
    told(runs, "figure", "4", "--out", str(tmp_path))
    assert "AgentSys (ours)" in (tmp_path / "figure4.csv").read_text()


def test_whole_names_are_replaced_and_no_other_words() -> None:
    grid = Grid("m on b", ("Defense", "Suite", "ASR"), [cells("agentsys", "none", "1.0")], names=1)
    notes = [
        "agentsys, camel: none lacks 19; agentsys_flat and results/agentsys stay.",
        "m: 3 cases (simulated).",
    ]
    document = Document([("m on b", [grid])], notes, commands=["agentsys run defense=agentsys"])
    shown = SHOWN.model_copy(update={"models": {"simulated": "Agent", "m": "Model M"}})
    found = as_shown(Output("x", document, LongForm({}, [])), shown).document
    assert found.sections[0][0] == "Model M on b"
    assert found.sections[0][1][0].rows == [cells("AgentSys (ours)", "none", "1.0")]
    assert found.notes[0].startswith(
        "AgentSys (ours), camel: none lacks 19; agentsys_flat and results/agentsys"
    )
    assert found.notes[1] == "Model M: 3 cases (simulated)."
    assert found.commands == ["agentsys run defense=agentsys"]


def test_a_simulated_model_keeps_its_mark() -> None:
    shown = ShownNames(models={"gpt-4o": "GPT-4o", "simulated": "Agent"})
    assert shown.model("gpt-4o (simulated)") == "GPT-4o (simulated)"
    assert shown.model("simulated") == "Agent (simulated)"
    assert shown.model("gpt-4o") == "GPT-4o"


@pytest.mark.parametrize(
    ("section", "slip"),
    [
        ("{defenses: {a: X, b: X}}", "shown as 'X'"),
        ("{defence: {a: X}}", "defence"),
        ("{models: {a: ''}}", "at least 1 character"),
        ("[a]", "Write a pattern of folders per entry"),
    ],
)
def test_a_slip_in_the_section_is_one_line(tmp_path: Path, section: str, slip: str) -> None:
    path = tmp_path / "names.yaml"
    path.write_text(f"shown: {section}\n")
    with pytest.raises(ConfigError, match=slip) as said:
        Names(path)
    assert "\n" not in str(said.value)


def test_the_section_stands_beside_patterns_and_counts_in_the_file_given_only(tmp_path: Path) -> None:
    path = tmp_path / BESIDE
    path.write_text('shown: {defenses: {none: X}}\n"*-local": {model: m}\n')
    assert Names(path).shown.defense("none") == "X"
    assert Names(path).of("/runs/x-local").model == "m"
    assert Names().of(str(tmp_path / "x-local")).model == "m"
    assert Names().shown.defense("none") == "none"
