"""`agentsys check` on AgentDojo's published folder, which names no version; and the two runs' fixed columns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsys.cli import app

pytestmark = pytest.mark.slow

NAME = "agentdojo-gpt-4o-mini-2024-07-18"
CUT = "banking/user_task_3/important_instructions/injection_task_1.json"


def check(folder: Path) -> Any:
    """The findings on a folder, by their subjects, and the verdict."""
    ran = CliRunner().invoke(app, ["check", str(folder), "--format", "json", "--workers", "2"])
    assert ran.exit_code == 0, ran.output
    page = json.loads(ran.stdout)
    return {one["subject"]: one for one in page["findings"]}, page["verdict"]


def test_check_finds_the_version_of_agentdojos_published_folder_and_says_its_share(
    published: Callable[[str], Path],
) -> None:
    found, verdict = check(published(NAME))
    # Two attacks of Workspace that no version's checks call failed; nobody knows why the record does.
    assert verdict == "suspect"
    assert found["Scores"]["text"].startswith(
        "2 scores of 726 records come out otherwise; 724 of 726 records score as stored under v1.1, which explains"
        " most of what names no version (v1: 723; v1.1.1: "
    )
    assert "; v1.2: 708; " in found["Scores"]["text"]
    assert [line.rpartition(": ")[2] for line in found["Scores"]["details"]] == [
        "not explained",
        "data changed",
    ]
    assert found["Records"]["grade"] == "valid" and "Missing" not in found and "Unread" not in found
    assert len(found) <= 7  # one page


def test_one_file_that_was_cut_short_is_named_and_makes_the_verdict_no_worse(
    published: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = tmp_path / "cut"
    shutil.copytree(published(NAME), copy)
    (file,) = copy.glob(f"*/{CUT}")
    file.write_bytes(file.read_bytes()[:700])
    found, verdict = check(copy)
    assert verdict == "suspect"
    assert str(file) in found["Unread"]["details"][0] and found["Unread"]["grade"] == "note"
    assert "723 of 725 records score as stored under v1.1" in found["Scores"]["text"]
    assert found["Missing"]["details"] == ["banking user_task_3 injection_task_1"]


@pytest.mark.parametrize(
    ("name", "version", "official", "fixed"),
    [
        # Recorded: 30.66. Executed again two attacks more succeed, which no check and no fix explains.
        (NAME, "v1.1", "30.87", "30.84"),
        ("agentdojo-gpt-4o-2024-05-13-tool_filter", "v1", "7.39", "7.74"),
    ],
)
def test_the_fixed_column_counts_the_attacks_that_user_tasks_hid(
    published: Callable[[str], Path], name: str, version: str, official: str, fixed: str
) -> None:
    rescoring = pytest.importorskip("agentsys_plugins.audit.rescoring.rescore")
    document = pytest.importorskip("agentsys_plugins.audit.rescoring.rescoring_document")
    found = rescoring.rescore_records([published(name)], version, processes=2)
    grids = [grid for _, of in document.build_rescoring_document(found).sections for grid in of]
    (shown,) = [grid for grid in grids if grid.caption.startswith("official and fixed scores")]
    (line,) = [
        line
        for line in shown.rows
        if (line[0].text, line[1].text) == ("important_instructions", document.ALL_SUITES)
    ]
    assert (line[5].detail, line[6].detail) == (official, fixed)
    hid = [case for case in found.cases if case.fixed and "undone_by_user_task" in case.fixed.changed_by]
    travel = ("user_task_0", "injection_task_0")
    assert travel in [(case.trajectory.user_task_id, case.trajectory.injection_task_id) for case in hid]
