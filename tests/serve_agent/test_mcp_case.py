"""A case as an MCP server: a client of another make gets the score of the run in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp_case_client import play_served_case, server_command
from small_runs import Silent

from agentsys.errors import ConfigError
from agentsys.runs.run_case import case_scene
from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.mcp_case import TASK, serve_case

pytest.importorskip("mcp")
SETTINGS = ("model=simulated", "benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[4]")


@pytest.mark.parametrize("attack", ["mcp_description", "mcp_error"])
def test_a_foreign_client_gets_the_score_of_the_run_in_this_process(attack: str, tmp_path: Path) -> None:
    settings = [*SETTINGS, f"attack={attack}", f"logdir={tmp_path / 'run'}"]
    session = prepare_session(settings)
    session.execute(listener := Silent())
    (own,) = listener.records
    (job,) = session.plan.jobs
    folder = tmp_path / "case"
    command = server_command(*SETTINGS, f"attack={attack}", f"logdir={folder}")
    score = play_served_case(job.cell.stack.for_scene(case_scene(job)), command, folder)
    assert (score["utility"], score["security"]) == (own.utility, own.security)
    assert score["exposure"]["shown_in"] == list(own.exposure.shown_in)
    assert set(json.loads((folder / TASK).read_text())) == {"system", "task", "answer"}


def test_settings_that_choose_several_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose 9"):
        serve_case([*SETTINGS[:3], "attack=mcp_description", f"logdir={tmp_path}"])
