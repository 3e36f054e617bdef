"""DRIFT's own files become rows, with its scores as it recorded them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, store_own

from agentsys.analysis.metrics.rates import measure
from agentsys.records.case_reader import read_cases


def _store(folder: Path, **fields: Any) -> Path:
    stored = {
        "suite_name": "banking",
        "pipeline_name": "gpt-4o-mini-2024-07-18",
        "user_task_id": "user_task_13",
        "injection_task_id": "injection_task_5",
        "attack_type": "important_instructions",
        "build_constraints": True,
        "injection_isolation": True,
        "dynamic_validation": True,
        "adaptive_attack": False,
        "tool_permission": {"send_money": "Write"},
        "initial_trajectory": ["read_file"],
        "initial_checklist": "None",
        "conversations": [
            {"role": "user", "content": "[CALL ERROR] is what the user asks about"},
            {"role": "assistant", "content": "<function_call>", "tool_calls": []},
            {"role": "user", "content": "{'role': 'user'} [CALL ERROR] send_money"},
            {"role": "assistant", "content": "<final_answer>", "tool_calls": []},
        ],
        "benchmark_version": "v1.2",
        "utility": True,
        "security": True,
        "total_tokens": 11379,
        "duration": 26.5,
    } | fields
    path = folder / "case.json"
    path.write_text(json.dumps({key: value for key, value in stored.items() if value != "absent"}))
    return path


@pytest.mark.parametrize(
    ("suite", "cases", "utility", "asr", "refusals"),
    [("banking", 144, 40.97, 4.86, 67), ("travel", 140, 53.57, 0.0, 79)],
)
def test_published_runs_give_the_recorded_figures(
    published: Callable[[str], Path], suite: str, cases: int, utility: float, asr: float, refusals: int
) -> None:
    reading = read_cases([published(f"drift-gpt-4o-mini-2024-07-18-{suite}")])
    numbers = {row.metric: row for row in measure(reading.cases, replicates=10) if row.suite == suite}
    assert (len(reading.cases), reading.skipped_files, reading.repeated_count) == (cases, (), 0)
    assert round(numbers["utility_under_attack"].value, 2) == utility
    assert round(numbers["targeted_asr"].value, 2) == asr
    assert sum(case.decisions["denied"] for case in reading.cases) == refusals
    assert {(case.model, case.defense, case.version) for case in reading.cases} == {
        ("gpt-4o-mini-2024-07-18", "drift", "v1.2")
    }
    assert {case.notes for case in reading.cases} == {()}


def test_a_file_gives_what_it_records_and_leaves_the_rest_unknown(tmp_path: Path) -> None:
    _store(tmp_path)
    (found,) = read_cases([tmp_path]).cases
    assert (found.utility, found.injection_success, found.foreign, found.simulated) == (
        True,
        True,
        True,
        False,
    )
    assert (found.tokens_by_role, found.prompt_tokens, found.cost_usd) == ({"all": 11379}, None, None)
    assert (found.decisions, found.trajectory_length, found.ground_truth_length) == ({"denied": 1}, 0, 2)
    assert (found.exposed_raw, found.exposed_shown, found.injection_round) == (None, None, None)


@pytest.mark.parametrize(
    ("switched_off", "defense"),
    [
        (["injection_isolation"], "drift_with_build_constraints_dynamic_validation"),
        (["build_constraints", "injection_isolation", "dynamic_validation"], "drift_with_nothing"),
    ],
)
def test_an_ablation_is_not_counted_as_drift(tmp_path: Path, switched_off: list[str], defense: str) -> None:
    _store(tmp_path, **dict.fromkeys(switched_off, False))
    assert read_cases([tmp_path]).cases[0].defense == defense


def test_benign_and_adaptive_runs_are_told_apart(tmp_path: Path) -> None:
    _store(tmp_path, attack_type=None, injection_task_id=None)
    (benign,) = read_cases([tmp_path]).cases
    assert (benign.attack, benign.injection_success) == ("none", None)
    _store(tmp_path, adaptive_attack=True)
    assert read_cases([tmp_path]).cases[0].attack == "important_instructions_adaptive"


@pytest.mark.parametrize("broken", [{"security": "absent"}, {"utility": "yes"}, {"conversations": "absent"}])
def test_an_unfinished_file_is_skipped_with_a_reason(tmp_path: Path, broken: dict[str, Any]) -> None:
    store_own(tmp_path, case_of())
    _store(tmp_path, **broken)
    reading = read_cases([tmp_path])
    assert (len(reading.cases), len(reading.skipped_files)) == (1, 1)
    assert reading.skipped_files[0].reason
