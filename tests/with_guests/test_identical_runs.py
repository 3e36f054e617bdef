"""Two runs of one plan are the same conversations, stamps included, and the second asks nobody anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from served_faults import serve
from small_runs import Silent

import agentsys_plugins.guards
from agentsys.base.config_catalog import list_config_names
from agentsys.errors import ConfigError
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.serve.agent_server import build_served_model

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


_URLS: dict[str, Callable[[str], str]] = {
    "served": lambda root: f"{root}/v1",
    "served-anthropic": lambda root: root,
    "served-google": lambda root: root,
}


@pytest.mark.parametrize("model", list(_URLS))
def test_a_planned_conversation_over_the_wire_goes_as_with_the_model_itself(
    tmp_path: Path, model: str
) -> None:
    with serve(build_served_model(["benchmark=asb"])) as server:
        root = server.base_url.removesuffix("/v1")
        session = prepare_session(
            [
                "benchmark=asb",
                "benchmark.mode=faithful",
                "benchmark.suites=[helpdesk_agent]",
                f"model={model}",
                f"model.base_url={_URLS[model](root)}",
                "attack=opi_naive",
                "limit_per_suite=1",
                f"logdir={tmp_path}",
            ]
        )
        listener = Silent()
        session.execute(listener)
    (record,) = listener.records
    assert record.status == "ok"
    assert (record.measured["steps"], record.measured["plan_tries"]) == (2, 1)
    assert record.measured["patched_plan"]


GUARDS = Path(agentsys_plugins.guards.__file__).parent / "configs" / "defense"
"""Other people's guards, which need their packages."""
_NEED_WEIGHTS = ("piguard", "promptguard", "prompt_guard", "protectai", "datafilter")


def _play_presets(folder: Path, *model: str) -> dict[tuple[str, ...], dict[str, Any]]:
    # The served model tells no log-probabilities, which one preset decides by.
    left_out = ("agentsys_scored", *_NEED_WEIGHTS, *(path.stem for path in GUARDS.glob("*.yaml")))
    presets = [name for name in list_config_names("defense") if not any(part in name for part in left_out)]
    cases = ["benchmark.suites=[slack]", "user_tasks=[0,2]", "injection_tasks=[1]"]
    chosen = [f"defense={','.join(presets)}", "attack=important_instructions", *cases]
    listener = Silent()
    prepare_session([*model, *chosen, f"logdir={folder}", "executor.workers=2"]).execute(listener)
    return {
        (record.case.defense, record.case.user_task_id): {
            "scores": (record.status, record.utility, record.security),
            "spans": [
                (span.kind, span.name, span.decision) for span in record.spans if span.kind != "privileges"
            ],
        }
        for record in listener.records
    }


@pytest.mark.slow
def test_every_preset_gets_over_the_wire_what_it_gets_from_the_model_itself(tmp_path: Path) -> None:
    with serve(build_served_model(["model.reader=hostile"])) as server:
        address = f"model.base_url={_URLS['served'](server.base_url.removesuffix('/v1'))}"
        served = _play_presets(tmp_path / "served", "model=served", address)
    own = _play_presets(tmp_path / "own", "model=simulated")
    assert len(own) > 100
    assert served == own


@pytest.mark.parametrize(
    ("override", "says"),
    [("benchmark=asb,agentdojo", "one benchmark at a time"), ("benchmark=abs", "Did you mean asb")],
)
def test_a_slip_in_what_it_is_to_know_is_one_line(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_served_model([override])
