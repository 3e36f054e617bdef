"""The text protocol through real runs: the same cases as with native calls, and AgentDojo's own element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served_faults import Faults, serve
from served_faults import TestServer as Server
from small_runs import Silent, records_in
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.agent_server import build_served_model

CASES = ["benchmark.suites=[banking]", "user_tasks=[0,1,3]", "injection_tasks=[0,4]"]


@pytest.fixture(scope="module")
def server() -> Any:
    with serve(build_served_model()) as running:
        yield running


def ran(server: Server, folder: Path, *options: str) -> dict[str, Any]:
    defense = [] if any(option.startswith("defense=") for option in options) else ["defense=none"]
    chosen = ["model=served", f"model.base_url={server.openai_base_url}", *defense, *CASES, *options]
    session = prepare_session([*chosen, "attack=none,important_instructions", f"logdir={folder}"])
    session.execute(Silent())
    return {key.split("/", 1)[1]: record for key, record in records_in(folder).items()}


def facts(record: Any) -> Any:
    """Scores, and the calls; not those of attacked cases, where a native reply may make two at once."""
    calls = [call for m in record["messages"] for call in (m.get("tool_calls") or ())]
    listed = [(call["function"], call["args"]) for call in calls]
    return record["utility"], record["security"], listed if record["injection_task_id"] is None else None


@pytest.mark.parametrize("role", ["tool", "input"])
def test_cases_through_text_are_those_of_native_calls(server: Server, role: str, tmp_path: Path) -> None:
    native = ran(server, tmp_path / "native")
    text = ran(server, tmp_path / "text", "+model.tools=text", f"+model.tool_role={role}")
    assert native.keys() == text.keys()
    assert {key: facts(record) for key, record in text.items()} == {
        key: facts(record) for key, record in native.items()
    }
    assert any(record["security"] and record["injection_task_id"] for record in text.values())


def test_a_guard_that_is_another_model_stands_beside_an_agent_through_text(
    server: Server, tmp_path: Path
) -> None:
    options = ["+model.tools=text", "+model.roles.promptarmor_guard=simulated", "defense=promptarmor"]
    records = ran(server, tmp_path, *options)
    blocks = [record["agentsys"] for record in records.values()]
    assert {block["status"] for block in blocks} == {"ok"}
    assert not any(record["security"] for record in records.values() if record["injection_task_id"])
    asked = {
        (call["role"], call["model_id"]) for b in blocks for span in b["spans"] for call in span["calls"]
    }
    assert asked == {("agent", "simulated"), ("promptarmor_guard", "simulated")}


def test_what_is_too_long_is_an_outcome_of_its_own_and_counted_by_suite(tmp_path: Path) -> None:
    too_long = Faults(rate=1.0, kinds=("context_length",))
    with serve(build_served_model(), faults=too_long) as server:
        records = ran(server, tmp_path, "+model.tools=text")
    blocks = [record["agentsys"] for record in records.values()]
    assert {(block["status"], block["error_kind"]) for block in blocks} == {("error", "context_length")}
    shown = CliRunner().invoke(app, ["results", str(tmp_path), "--full"]).stdout
    told = " ".join(shown.split())
    assert f"Errored cases are left out of the rates: {len(blocks)} (context_length {len(blocks)})." in told
    assert "Longer than the model's context (context_length): banking 9 of 9 cases." in told
