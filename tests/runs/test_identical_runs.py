"""Two runs of one plan are the same conversations, stamps included, and the second asks nobody anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from served_faults import serve
from small_runs import Silent

from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.agent_server import build_served_model

_TIMES = {"duration", "duration_s", "latency_s", "evaluation_timestamp"}
_CACHE = {"from_cache", "attempts", "requests", "cache_hits", "cost_usd"}
# Workspace's user task 31 creates a file, and injection task 11 a mail: both are stamped.
STAMPED = ["benchmark.suites=[workspace]", "user_tasks=[31]", "injection_tasks=[11]", "attack=none,direct"]


def without(value: Any, left_out: set[str]) -> Any:
    """JSON data less some keys. Unlike `small_runs.canonical` it lets every stamp stand."""
    if isinstance(value, dict):
        return {key: without(inner, left_out) for key, inner in value.items() if key not in left_out}
    if isinstance(value, list):
        return [without(inner, left_out) for inner in value]
    return value


def run(folder: Path, *overrides: str, again: bool = False) -> dict[str, Any]:
    session = prepare_session([*STAMPED, *overrides, f"logdir={folder}"], again=again)
    assert session.execute(Silent()).errors == 0
    return {job.case.key: orjson.loads((folder / job.case.key).read_bytes()) for job in session.plan.jobs}


def test_two_runs_in_two_folders_differ_in_timings_alone(tmp_path: Path) -> None:
    first, second = (run(tmp_path / name, "model=simulated") for name in ("a", "b"))
    assert without(first, _TIMES) == without(second, _TIMES)
    assert {block["agentsys"]["clock"] for block in first.values()} == {"2025-01-01T12:00:00.500000"}
    assert b"2025-01-01 12:00:00.500000" in orjson.dumps(first)


def test_with_the_real_clock_they_read_the_time_of_day(tmp_path: Path) -> None:
    real = run(tmp_path, "model=simulated", "benchmark.clock=real")
    assert {block["agentsys"]["clock"] for block in real.values()} == {None}
    assert b"2025-01-01" not in orjson.dumps(real)


@pytest.mark.parametrize("defense", ["none", pytest.param("agentsys", marks=pytest.mark.slow)])
def test_the_second_run_is_answered_by_the_reply_cache(tmp_path: Path, defense: str) -> None:
    with serve(build_served_model()) as server:
        served = [
            "model=served",
            "model.cache=true",
            f"model.base_url={server.base_url}/v1",
            f"defense={defense}",
        ]
        first = run(tmp_path, *served)
        second = run(tmp_path, *served, again=True)
    usage = [role for block in second.values() for role in block["agentsys"]["usage"].values()]
    assert sum(role["calls"] for role in usage) > 0
    assert sum(role["requests"] for role in usage) == 0
    assert without(first, _TIMES | _CACHE) == without(second, _TIMES | _CACHE)
