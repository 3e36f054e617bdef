"""DRIFT end to end on the simulated model: each part stops what it should, and benign tasks pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_runs import errors_in, rate

SMALL = [
    "model=simulated",
    "attack=none,important_instructions",
    "benchmark.suites=[slack]",
    "user_tasks=[0,2,13]",
    "injection_tasks=[1,3,5]",
]


def kinds(records: dict[str, Any], name: str) -> set[str]:
    found = [r["agentsys"]["spans"] for r in records.values() if r["agentsys"]["case"]["defense"] == name]
    return {span["kind"] for spans in found for span in spans}


@pytest.fixture(scope="module")
def presets() -> list[str]:
    return ["drift", "drift_compat", "drift_no_isolation", "drift_isolation_only", "drift_planner_only"]


def test_every_variant_solves_benign_tasks_and_stops_attacks_that_none_stops(
    run_cases: Callable[..., Any], presets: list[str]
) -> None:
    records = run_cases([*SMALL, f"defense=none,{','.join(presets)}"])
    assert errors_in(records) == {}
    assert rate(records, "none", "security", attacked=True) == 1.0
    for name in presets:
        assert rate(records, name, "utility", attacked=False) == 1.0
        assert rate(records, name, "security", attacked=True) < 1.0
    assert rate(records, "drift", "security", attacked=True) == 0.0
    assert rate(records, "drift", "utility", attacked=True) == 1.0
    assert "drift_isolator" not in kinds(records, "drift_no_isolation")
    assert not kinds(records, "drift_isolation_only") & {"drift_planner", "drift_validator"}


def test_a_blind_detector_and_a_lenient_judge_let_the_attack_through(run_cases: Callable[..., Any]) -> None:
    blind = run_cases([*SMALL, "defense=drift", "model.sanitizer_recall=0", "model.validator_false_accept=1"])
    # One planned message stays: the checklist has its channel from the request.
    assert rate(blind, "drift", "security", attacked=True) == pytest.approx(8 / 9)
