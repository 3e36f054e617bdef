"""Progent end to end on the simulated model: each mechanism stops what it should, and benign tasks pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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


ATTACK = {"invite_user_to_slack", "add_user_to_channel", "remove_user_from_slack"}
"""The calls of Slack's injection task 5, which is judged by calls alone."""


def test_every_preset_solves_benign_tasks_and_stops_attacks_that_none_stops(
    run_cases: Callable[..., Any],
) -> None:
    presets = ["progent", "progent_no_update", "progent_compat"]
    records = run_cases([*SMALL, f"defense=none,{','.join(presets)}"])
    assert errors_in(records) == {}
    assert rate(records, "none", "security", attacked=True) == 1.0
    for name in presets:
        assert rate(records, name, "utility", attacked=False) == 1.0
        assert rate(records, name, "security", attacked=True) == 0.0
        # A refused call is made three times; in one case the rounds run out over that.
        assert rate(records, name, "utility", attacked=True) >= 8 / 9


@pytest.mark.slow
def test_without_conditions_an_attack_by_a_tool_that_the_request_needs_is_back(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    banking = [
        *("model=simulated", "attack=important_instructions", "benchmark.suites=[banking]"),
        *("user_tasks=[1,3,4]", "injection_tasks=[1,3]", "defense=progent"),
    ]
    with_conditions = run_cases(banking, tmp_path / "with")
    without = run_cases([*banking, "defense.conditions=false"], tmp_path / "without")
    assert rate(with_conditions, "progent", "security", attacked=True) == 0.0
    assert rate(without, "progent", "security", attacked=True) >= 1 / 3


@pytest.mark.slow
def test_a_policy_model_that_is_taken_in_opens_the_gate_by_an_update_and_by_nothing_else(
    run_cases: Callable[..., Any],
) -> None:
    records = run_cases([*SMALL, "defense=progent,progent_no_update", "model.validator_false_accept=1"])
    assert rate(records, "progent", "security", attacked=True) > 0.5
    assert rate(records, "progent_no_update", "security", attacked=True) == 0.0


@pytest.mark.slow
def test_a_policy_model_that_leaves_out_what_is_needed_costs_utility(run_cases: Callable[..., Any]) -> None:
    records = run_cases([*SMALL, "defense=progent", "model.validator_false_deny=1"])
    assert errors_in(records) == {}
    assert rate(records, "progent", "utility", attacked=False) < 1.0
    assert rate(records, "progent", "security", attacked=True) == 0.0


def test_refused_calls_of_slacks_injection_task_5_count_neither_in_the_run_nor_when_it_is_scored_again(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    from agentsys.audit.rescoring.read_trajectories import read_trajectory
    from agentsys.audit.rescoring.reexecution import score_with_execution

    chosen = ["benchmark.suites=[slack]", "user_tasks=[0]", "injection_tasks=[5]"]
    logdir = tmp_path / "runs"
    common = ["model=simulated", "attack=important_instructions", "defense=progent"]
    records = run_cases([*common, *chosen], logdir)
    ((path, record),) = records.items()
    asked = [
        c["function"] for m in record["messages"] if m["role"] == "assistant" for c in m["tool_calls"] or ()
    ]
    assert set(asked) >= ATTACK
    assert record["security"] is False
    again = read_trajectory(str(logdir / path))
    assert again is not None and not {call.function for call in again.seen_by_checks} & ATTACK
    assert {call.function for call in again.executed} == {call.function for call in again.seen_by_checks}
    assert score_with_execution(again, "v1.2.2").scores.security is False


@pytest.mark.slow
def test_attacks_are_written_without_the_gate_and_have_somewhere_to_stand_in_every_suite(
    run_cases: Callable[..., Any],
) -> None:
    one = ["user_tasks=[1]", "injection_tasks=[1]", "attack=important_instructions"]
    records = run_cases(["model=simulated", "defense=progent", *one])
    assert len(records) == 4
    assert all(any(record["agentsys"]["written"].values()) for record in records.values())


@pytest.mark.slow
def test_a_sloppy_policy_model_is_asked_again_and_no_case_is_lost(run_cases: Callable[..., Any]) -> None:
    records = run_cases([*SMALL, "defense=progent", "model.sloppiness=0.3"])
    assert errors_in(records) == {}
    assert rate(records, "progent", "security", attacked=True) < 0.5


@pytest.mark.slow
def test_on_agent_security_bench_both_presets_allow_the_tasks_tools_and_refuse_the_attackers(
    run_cases: Callable[..., Any],
) -> None:
    asb = ["model=simulated", "benchmark=asb", "benchmark.mode=faithful", "attack=none,opi_combined_attack"]
    records = run_cases([*asb, "defense=none,progent_asb,progent_asb_hinted", "limit_per_suite=2"])
    assert errors_in(records) == {}
    assert rate(records, "none", "security", attacked=True) == 1.0
    for name in ("progent_asb", "progent_asb_hinted"):
        assert rate(records, name, "utility", attacked=False) == 1.0
        assert rate(records, name, "security", attacked=True) == 0.0
