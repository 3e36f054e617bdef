"""The text protocol through real runs: the same cases as with native calls, and AgentDojo's own element."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import openai
import pytest
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.llms.local_llm import LocalLLM
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from small_runs import Silent, records_in

from agentsys.models.serving import Server, serve
from agentsys.runs.served_model import served_model
from agentsys.runs.session import prepare

CASES = ["benchmark.suites=[banking]", "user_tasks=[0,1,3]", "injection_tasks=[0,4]"]


@pytest.fixture(scope="module")
def server() -> Any:
    with serve(served_model(version="v1.2.2", options={})) as running:
        yield running


def ran(server: Server, folder: Path, *options: str) -> dict[str, Any]:
    chosen = ["model=served", f"model.base_url={server.openai_base_url}", "defense=none", *CASES, *options]
    session = prepare([*chosen, "attack=none,important_instructions", f"logdir={folder}"])
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


def test_agentdojos_own_element_is_served(server: Server) -> None:
    from agentdojo.task_suite.load_suites import get_suite

    client = openai.OpenAI(api_key="none", base_url=server.openai_base_url)
    local = LocalLLM(client, "simulated")
    pipeline = AgentPipeline(
        [SystemMessage("Be brief."), InitQuery(), local, ToolsExecutionLoop([ToolsExecutor(), local])]
    )
    suite = get_suite("v1.2.2", "banking")
    with contextlib.redirect_stdout(io.StringIO()):
        passed = [
            suite.run_task_with_pipeline(pipeline, suite.user_tasks[f"user_task_{n}"], None, {})[0]
            for n in (0, 1, 3)
        ]
    assert passed == [True, True, True]
