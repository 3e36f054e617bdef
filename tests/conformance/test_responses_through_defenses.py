"""Defenses that rewrite conversations, over the Responses API of a server that refuses orphaned reasoning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served_faults import TestServer as Server
from served_faults import serve
from small_runs import Silent, records_in

from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.agent_server import build_served_model

DEFENSES = ("none", "agentsys", "drift", "tool_filter", "promptarmor", "attriguard", "melon")
"""The rewriters: fresh contexts, rebuilt turns, calls taken away, and calls made up."""
CASES = [
    "benchmark.suites=[banking]",
    "user_tasks=[0,3]",
    "injection_tasks=[0]",
    "attack=important_instructions",
]


@pytest.fixture(scope="module")
def server() -> Any:
    with serve(build_served_model()) as running:
        yield running


def ran(server: Server, folder: Path, model: str, defense: str) -> dict[str, Any]:
    options = [f"model={model}", f"model.base_url={server.openai_base_url}", f"defense={defense}"]
    options += ["defense.embedder=char_ngrams"] if defense == "melon" else []
    session = prepare_session([*options, *CASES, f"logdir={folder}", "executor.workers=2"])
    session.execute(Silent())
    return {key.split("/", 1)[1]: record for key, record in records_in(folder).items()}


def facts(record: Any) -> Any:
    block = record["agentsys"]
    return record["utility"], record["security"], block["error_kind"], record["error"]


@pytest.mark.slow
@pytest.mark.parametrize("defense", DEFENSES)
def test_cases_over_responses_end_as_over_chat_completions(
    server: Server, defense: str, tmp_path: Path
) -> None:
    chat = ran(server, tmp_path / "chat", "served", defense)
    before = len(server.captured)
    responses = ran(server, tmp_path / "responses", "served-responses", defense)
    assert {key: facts(record) for key, record in responses.items()} == {
        key: facts(record) for key, record in chat.items()
    }
    assert all(record["agentsys"]["status"] == "ok" for record in responses.values())
    asked = server.captured[before:]
    assert {one.path for one in asked} == {"/v1/responses"}
    # DRIFT builds every turn anew from what it read in it, so that nothing of the model's thoughts is left.
    assert any(b'"type":"reasoning"' in one.body for one in asked) == (defense != "drift")
