"""`benchmark.fixes`: what can be written, where it is part of a case's identity, and what records hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixed_on_paper import scored

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.fixes.fix_catalog import CHECKER_ONLY
from agentsys.errors import ConfigError
from agentsys.runs.compose import compose

SMALL = ["model=simulated", "defense=none", "attack=important_instructions", "benchmark.suites=[banking]"]
ONE = [*SMALL, "user_tasks=[5]", "injection_tasks=[0]"]


def test_an_unknown_fix_is_a_one_line_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean any_match"):
        AgentDojo("v1.2.2", fixes=["any_mach"])
    with pytest.raises(ConfigError, match="Did you mean any_match"):
        compose(["benchmark.fixes=[any_mach]"])


def test_only_the_chosen_fixes_are_applied() -> None:
    assert scored("banking", "user_task_5", [], fixes=("any_match",)).utility_fixed
    assert scored("banking", "user_task_5", []).facts["fixes"] == list(CHECKER_ONLY)


def test_a_fix_that_fails_leaves_the_official_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentsys.benchmarks.fixes import fixed_scores

    def broken(run: Any, official: bool) -> bool:
        raise KeyError("x")

    monkeypatch.setattr(fixed_scores, "UTILITY", {"utility_new_effects": broken})
    found = scored("banking", "user_task_5", [])
    assert found[:4] == (True, False, None, None)


def test_repeated_writes_are_counted_and_repeated_reads_are_not() -> None:
    pay = ("send_money", {"recipient": "x", "amount": 1.0, "subject": "s", "date": "2022-01-01"})
    read: tuple[str, dict[str, Any]] = ("get_balance", {})
    failed: tuple[str, dict[str, Any]] = ("send_money", {"amount": "much"})
    found = scored("banking", "user_task_0", [pay, read, read, pay, failed, failed, pay])
    assert found.facts["repeats"] == 2


def test_a_record_holds_official_and_fixed_scores(run_cases: Callable[..., Any]) -> None:
    [record] = run_cases(ONE).values()
    measured = record["agentsys"]["measured"]
    assert measured["fixes"] == list(CHECKER_ONLY)
    assert {"utility_fixed", "security_fixed", "changed_by", "repeats"} < measured.keys()
    assert record["benchmark_version"] == "v1.2.2" and record["utility"] is record["agentsys"]["utility"]


def test_tasks_without_a_vector_have_no_attacked_cases_under_append_injection(tmp_path: Any) -> None:
    from agentsys.runs.run_session import prepare_session

    slack = [
        "model=simulated",
        "defense=none",
        "benchmark.suites=[slack]",
        "benchmark.fixes=[append_injection]",
    ]
    attacked = prepare_session([*slack, "attack=important_instructions", f"logdir={tmp_path}"]).plan
    benign = prepare_session([*slack, "attack=none", f"logdir={tmp_path}"]).plan
    assert (len(attacked.jobs), len(benign.jobs)) == (12 * 5, 21)
    assert {job.case.benchmark for job in attacked.jobs} == {"agentdojo+append_injection"}
