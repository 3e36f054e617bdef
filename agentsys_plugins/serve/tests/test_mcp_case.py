"""A case as an MCP server: clients and proxies of another make get the score of the run in this process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from mcp_case_client import play_served_case, server_command
from small_runs import Silent

from agentsys.errors import ConfigError
from agentsys.runs.run_case import make_case_scene
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.serve.mcp_case import TASK, serve_case

pytest.importorskip("mcp")
FASTMCP = os.environ.get("AGENTSYS_FASTMCP") or shutil.which("fastmcp")
SETTINGS = ("model=simulated", "benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[4]")
FORMS = ("description", "parameter", "name", "error", "rug_pull")
FIRST_GOALS = {"banking": 0, "slack": 1, "travel": 6, "workspace": 0}

Wrap = Callable[[Sequence[str], Path], Sequence[str]]
"""A server's command and a folder -> the command that a client starts."""


def check_same_score(settings: Sequence[str], folder: Path, wrap: Wrap = lambda command, _: command) -> None:
    session = prepare_session([*settings, f"logdir={folder / 'run'}"])
    session.execute(listener := Silent())
    ((own,), (job,)) = listener.records, session.plan.jobs
    served = folder / "case"
    command = wrap(server_command(*settings, f"logdir={served}"), folder)
    score = play_served_case(job.cell.stack.for_scene(make_case_scene(job)), command, served)
    assert (score["utility"], score["security"]) == (own.utility, own.security)
    assert score["exposure"]["shown_in"] == list(own.exposure.shown_in)
    ran = [(span.name, span.decision["args"]) for span in own.spans if span.kind == "tool"]
    assert [(call["tool"], call["args"]) for call in score["calls"]] == ran
    assert set(json.loads((served / TASK).read_text())) == {"system", "task", "answer"}


def pass_through(command: Sequence[str], folder: Path) -> Sequence[str]:
    """Put FastMCP's proxy between client and server."""
    file = folder / "mcp.json"
    server = {"command": command[0], "args": command[1:], "cwd": str(Path.cwd()), "env": dict(os.environ)}
    file.write_text(json.dumps({"mcpServers": {"case": server}}))
    return [str(FASTMCP), "run", str(file), "--no-banner", "--log-level", "ERROR"]


@pytest.mark.slow
def test_a_foreign_client_gets_the_score_of_the_run_in_this_process(tmp_path: Path) -> None:
    check_same_score([*SETTINGS, "attack=mcp_description"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda command, _: command, id="sdk"),
        pytest.param(
            pass_through,
            id="proxy",
            marks=pytest.mark.skipif(
                FASTMCP is None,
                reason="FastMCP's proxy is not there: pip install fastmcp, or name it in AGENTSYS_FASTMCP",
            ),
        ),
    ],
)
@pytest.mark.parametrize("suite", FIRST_GOALS)
def test_twenty_cases_have_the_score_of_the_run_in_this_process(
    suite: str, wrap: Wrap, tmp_path: Path
) -> None:
    chosen = (f"benchmark.suites=[{suite}]", "user_tasks=[0]", f"injection_tasks=[{FIRST_GOALS[suite]}]")
    for form in FORMS:
        (tmp_path / form).mkdir()
        check_same_score(["model=simulated", *chosen, f"attack=mcp_{form}"], tmp_path / form, wrap)


def test_settings_that_choose_several_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose 9"):
        serve_case([*SETTINGS[:3], "attack=mcp_description", f"logdir={tmp_path}"])
