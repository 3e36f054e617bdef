"""Published gpt-4o-mini answers through our own plan, runner, store and tables."""

from __future__ import annotations

import tarfile
from pathlib import Path

import orjson
import pytest
from small_runs import Silent, records_in

ARCHIVE = Path(__file__).parents[2].parent / "shared/data/traces/agentdojo-gpt-4o-mini-2024-07-18.tar.gz"
KNOWN = {
    ("workspace", "user_task_16", "injection_task_4"),
    ("workspace", "user_task_39", "injection_task_4"),
}
"""Recorded as "not carried out" although the recorded agent sent the very mail that the check asks for."""


@pytest.mark.slow
def test_replayed_runs_score_as_they_were_recorded(tmp_path: Path) -> None:
    from agentsys.analysis.metrics import measure
    from agentsys.analysis.reading import read_cases
    from agentsys.runs.session import prepare

    if not ARCHIVE.exists():
        pytest.skip(f"the published runs are not here ({ARCHIVE.name})")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(tmp_path / "traces", filter="data")
    session = prepare(
        [
            "model=replay",
            f"model.traces={tmp_path / 'traces'}",
            "attack=none,important_instructions",
            "benchmark.version=v1.1",
            f"logdir={tmp_path / 'runs'}",
        ]
    )
    outcome = session.execute(Silent())
    assert (outcome.finished, outcome.errors) == (726, 0)

    utility, security = 0, set()
    traces = next((tmp_path / "traces").iterdir())
    for path, ours in records_in(tmp_path / "runs").items():
        _, suite, user_task, attack, file = path.split("/")
        recorded = orjson.loads((traces / suite / user_task / attack / file).read_bytes())
        utility += ours["utility"] == recorded["utility"]
        if attack != "none" and ours["security"] != recorded["security"]:
            security.add((suite, user_task, file.removesuffix(".json")))
    assert utility == 726
    assert security == KNOWN

    overall = {
        row.metric: round(row.value, 2)
        for row in measure(read_cases([tmp_path / "runs"]).cases)
        if row.suite == "overall"
    }
    assert (overall["benign_utility"], overall["utility_under_attack"]) == (63.54, 48.27)
    assert overall["targeted_asr"] == pytest.approx(30.66 + 2 / 240 * 100 / 4, abs=0.01)
