"""A server that fails three calls in ten changes nothing but the time a run takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served_faults import Faults, serve
from small_runs import Silent, records_in

CASES = ["benchmark.suites=[banking,slack]", "attack=none,important_instructions", "executor.workers=8"]
PATIENT = "model.retry={attempts: 12, base_s: 0.005, longest_s: 0.05, total_s: 60.0, empty_retries: 12}"


def outcomes(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What tables are made of, and the conversation itself."""
    return {
        path: (r["agentsys"]["status"], r["utility"], r["agentsys"]["security"], r["messages"])
        for path, r in records_in(folder).items()
    }


def run_against_server(folder: Path, faults: Faults, defense: str, limit: int) -> tuple[Any, dict[Any, int]]:
    from agentsys.runs.run_session import prepare_session
    from agentsys.serve_agent.agent_server import build_served_model

    with serve(build_served_model(), faults=faults) as server:
        session = prepare_session(
            [
                "model=served",
                f"model.base_url={server.openai_base_url}",
                "model.timeout_s=5",
                PATIENT,
                f"defense={defense}",
                f"limit_per_suite={limit}",
                f"logdir={folder}",
                *CASES,
            ]
        )
        return session.execute(Silent()), server.faults


@pytest.mark.parametrize(
    ("defense", "limit"), [("none", 2), pytest.param("agentsys", 12, marks=pytest.mark.slow)]
)
def test_with_three_calls_in_ten_failing_the_outcomes_are_those_of_the_fault_free_run(
    tmp_path: Path, defense: str, limit: int
) -> None:
    run_against_server(tmp_path / "calm", Faults(), defense, limit)
    stormy = Faults(rate=0.3, seed=3, max_in_a_row=4, hold_s=0.05)
    outcome, faults = run_against_server(tmp_path / "storm", stormy, defense, limit)
    assert outcome.errors == 0
    assert outcomes(tmp_path / "storm") == outcomes(tmp_path / "calm")
    assert len(faults) >= 9, f"too few kinds of fault were met: {faults}"
    if (
        defense == "none"
    ):  # AgentSys also sorts its tools into privileges, once for all cases and booked to none
        used = [
            usage
            for r in records_in(tmp_path / "storm").values()
            for usage in r["agentsys"]["usage"].values()
        ]
        assert sum(usage["requests"] - usage["calls"] for usage in used) == sum(faults.values())


def test_a_request_too_long_for_the_model_is_an_error_and_no_score(tmp_path: Path) -> None:
    faults = Faults(rate=1.0, kinds=("context_length",), max_in_a_row=1000)
    outcome, _ = run_against_server(tmp_path, faults, "none", limit=1)
    assert (outcome.finished, outcome.errors) == (4, 4)
    blocks = [r["agentsys"] for r in records_in(tmp_path).values()]
    assert {b["error_kind"] for b in blocks} == {"context_length"}
    assert not any(b["utility"] or b["security"] for b in blocks)
