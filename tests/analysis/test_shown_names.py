"""Names for showing: every table and figure has them, what other programs read does not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_output import command_output
from stored_cases import case_of, store_own

from agentsys.analysis.tables.table_document import Document, Grid, make_cells
from agentsys.analysis.tables.table_writers import LongForm, Output, with_shown_names
from agentsys.errors import ConfigError
from agentsys.records.names_file import DisplayNames, RunNames

SHOWN = DisplayNames(
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
    return command_output(*command, runs, "--names", runs / "names.yaml", columns=250)


TABLES = [
    ["results"],
    ["results", "--full"],
    ["compare"],
    ["results", "--by", "cost"],
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


@pytest.mark.parametrize(
    "command", [["results"], ["compare"], ["results", "--by", "cost"], ["table", "2"]], ids=" ".join
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_other_programs_read_the_names_of_the_runs(runs: Path, command: list[str], form: str) -> None:
    found = told(runs, *command, "--format", form)
    assert "agentsys" in found
    assert "AgentSys (ours)" not in found


def test_whole_names_are_replaced_and_no_other_words() -> None:
    grid = Grid("m on b", ("Defense", "Suite", "ASR"), [make_cells("agentsys", "none", "1.0")], names=1)
    notes = [
        "agentsys, camel: none lacks 19; agentsys_flat and results/agentsys stay.",
        "m: 3 cases (simulated).",
    ]
    document = Document([("m on b", [grid])], notes, commands=["agentsys run defense=agentsys"])
    shown = SHOWN.model_copy(update={"models": {"simulated": "Agent", "m": "Model M"}})
    found = with_shown_names(Output("x", document, LongForm({}, [])), shown).document
    assert found.sections[0][0] == "Model M on b"
    assert found.sections[0][1][0].rows == [make_cells("AgentSys (ours)", "none", "1.0")]
    assert found.notes[0].startswith(
        "AgentSys (ours), camel: none lacks 19; agentsys_flat and results/agentsys"
    )
    assert found.notes[1] == "Model M: 3 cases (simulated)."
    assert found.commands == ["agentsys run defense=agentsys"]


def test_a_simulated_model_keeps_its_mark() -> None:
    shown = DisplayNames(models={"gpt-4o": "GPT-4o", "simulated": "Agent"})
    assert shown.name_model("gpt-4o (simulated)") == "GPT-4o (simulated)"
    assert shown.name_model("simulated") == "Agent (simulated)"
    assert shown.name_model("gpt-4o") == "GPT-4o"


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
        RunNames(path)
    assert "\n" not in str(said.value)
