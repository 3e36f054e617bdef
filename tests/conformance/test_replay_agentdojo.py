"""Published runs, replayed by our runner, score as recorded; AgentDojo's loader reads our folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from small_runs import Silent, records_in

MINI = "gpt-4o-mini-2024-07-18"

KNOWN_CASES = {
    ("workspace", "user_task_16", "injection_task_4"),
    ("workspace", "user_task_39", "injection_task_4"),
}
"""Recorded as "not carried out" although the recorded agent sent the very mail that the check asks for."""


@pytest.mark.slow
def test_replayed_runs_score_as_they_were_recorded(published: Callable[[str], Path], tmp_path: Path) -> None:
    from agentsys.analysis.metrics.rates import measure
    from agentsys.records.case_reader import read_cases
    from agentsys.runs.run_session import prepare_session

    folder = published(f"agentdojo-{MINI}")
    session = prepare_session(
        [
            "model=replay",
            f"model.traces={folder}",
            "attack=none,important_instructions",
            "benchmark.version=v1.1",
            f"logdir={tmp_path / 'runs'}",
        ]
    )
    outcome = session.execute(Silent())
    assert (outcome.finished, outcome.errors) == (726, 0)

    utility, security = 0, set()
    traces = next(folder.iterdir())
    for path, ours in records_in(tmp_path / "runs").items():
        _, suite, user_task, attack, file = path.split("/")
        recorded = orjson.loads((traces / suite / user_task / attack / file).read_bytes())
        utility += ours["utility"] == recorded["utility"]
        if attack != "none" and ours["security"] != recorded["security"]:
            security.add((suite, user_task, file.removesuffix(".json")))
    assert utility == 726
    assert security == KNOWN_CASES

    overall = {
        row.metric: round(row.value, 2)
        for row in measure(read_cases([tmp_path / "runs"]).cases)
        if row.suite == "overall"
    }
    assert (overall["benign_utility"], overall["utility_under_attack"]) == (63.54, 48.27)
    assert overall["targeted_asr"] == pytest.approx(30.66 + 2 / 240 * 100 / 4, abs=0.01)


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
