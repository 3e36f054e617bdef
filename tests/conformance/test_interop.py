"""AgentDojo reads our folders; we run a pipeline that was written for AgentDojo."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SLACK = ["model=simulated", "benchmark.suites=[slack]", "user_tasks=[0,3]", "injection_tasks=[1,3]"]


def test_agentdojos_own_loader_reads_our_folder(run_cases: Callable[..., Any], tmp_path: Path) -> None:
    from agentdojo.benchmark import TaskResults, load_task_results

    records = run_cases([*SLACK, "defense=agentsys", "attack=none,important_instructions"])
    assert len(records) == 2 + 4
    for path in records:
        pipeline, suite, user_task, attack, file = path.split("/")
        loaded = load_task_results(
            pipeline, suite, user_task, attack, file.removesuffix(".json"), tmp_path / "runs"
        )
        assert isinstance(loaded, TaskResults)
        assert loaded.utility == records[path]["agentsys"]["utility"]
        assert loaded.messages[0]["role"] == "system"


FOREIGN = '''
from agentdojo.agent_pipeline import AgentPipeline, BasePipelineElement, InitQuery, SystemMessage
from agentdojo.types import ChatAssistantMessage, text_content_block_from_string


class Parrot(BasePipelineElement):
    """Answers with the query; knows nothing of this project."""

    def query(self, query, runtime, env=None, messages=(), extra_args={}):
        answer = ChatAssistantMessage(
            role="assistant", content=[text_content_block_from_string(query)], tool_calls=None
        )
        return query, runtime, env, [*messages, answer], extra_args


class Foreign:
    name = "foreign"

    def pipeline(self, model, suite):
        return AgentPipeline([SystemMessage("hello"), InitQuery(), Parrot()])
'''


def test_a_pipeline_written_for_agentdojo_runs_under_our_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from small_runs import Silent, records_in

    from agentsys.runs.run_session import prepare_session

    (tmp_path / "foreign_pipeline.py").write_text(FOREIGN)
    (tmp_path / "conf/defense").mkdir(parents=True)
    (tmp_path / "conf/defense/foreign.yaml").write_text("_target_: foreign_pipeline.Foreign\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    session = prepare_session(
        [*SLACK, "defense=foreign", f"logdir={tmp_path / 'runs'}"],
        config_dirs=[tmp_path / "conf"],
        plugin_paths=[tmp_path],
    )
    session.execute(Silent())
    records = records_in(tmp_path / "runs")
    assert [r["agentsys"]["status"] for r in records.values()] == ["ok", "ok"]
    assert all(r["messages"][-1]["role"] == "assistant" for r in records.values())
