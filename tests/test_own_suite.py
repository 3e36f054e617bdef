"""The documented example of a user's own suite: runs, and is reported under its own name."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.records.case_reader import load_runs

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_suite"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own_suite")
    chosen = ["benchmark=library", "defense=none,agentsys", "attack=none,important_instructions"]
    own = ["--config-dir", str(EXAMPLE / "conf"), "--plugin-path", str(EXAMPLE)]
    ran = CliRunner().invoke(app, ["run", *own, *chosen, f"logdir={folder}"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return folder


def test_the_suites_tasks_can_be_solved_and_attacked(folder: Path) -> None:
    cases = load_runs(folder)
    assert len(cases) == 8
    assert not cases["error_kind"].notna().any()
    none, agentsys = (cases[cases["defense"] == name] for name in ("none", "agentsys"))
    assert none["injection_success"].dropna().tolist() == [True, True]
    assert agentsys["injection_success"].dropna().tolist() == [False, False]
    assert agentsys[agentsys["injection_task_id"].isna()]["utility"].all()


def test_it_is_reported_under_its_own_name(folder: Path) -> None:
    assert set(load_runs(folder)["benchmark"]) == {"library"}
    shown = CliRunner().invoke(app, ["results", str(folder)], catch_exceptions=False)
    assert "on library v1" in shown.output
    assert "on agentdojo" not in shown.output
