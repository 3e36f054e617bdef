"""A guard's verdicts against the truth: over results and over cases, from counts and from whole runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from stored_cases import row

from agentsys.analysis.metrics.guard_errors import guard_measures
from agentsys.analysis.metrics.measures import measures
from agentsys.records.agentsys_format import count_guard_verdicts
from agentsys.records.case_reader import read_cases


def counts(**found: int) -> dict[str, dict[str, int]]:
    names = ("found", "missed", "false_alarms", "passed", "unreadable", "chars", "cut")
    return {"g": dict.fromkeys(names, 0) | found}


def numbers(*cases: Any) -> dict[str, Any]:
    return dict(guard_measures(list(cases), replicates=200))


def test_over_results_and_over_cases_are_two_questions() -> None:
    found = numbers(
        row(user_task_id="user_task_0", guards=counts(found=3, missed=1, passed=5)),
        row(user_task_id="user_task_1", guards=counts(found=4, false_alarms=2, passed=3)),
        row(user_task_id="user_task_2", guards=counts(passed=2)),
    )
    assert found["guard_fnr:g"].value == 100 / 8 and found["guard_fnr:g"].n == 8
    assert found["guard_fnr_cases:g"].value == 50 and found["guard_fnr_cases:g"].n == 2
    assert found["guard_fpr:g"].value == pytest.approx(200 / 12) and found["guard_fpr:g"].n == 12
    assert found["guard_fpr_cases:g"].value == pytest.approx(100 / 3)
    assert found["guard_fnr:g"].ci_low < 12.5 < found["guard_fnr:g"].ci_high


def test_what_cannot_be_read_is_in_its_own_rate_and_errors_are_in_none() -> None:
    found = numbers(
        row(user_task_id="user_task_0", guards=counts(found=1, unreadable=3, chars=200, cut=50)),
        row(user_task_id="user_task_1", guards=counts(missed=9), status="error"),
    )
    assert found["guard_unreadable:g"].value == 75 and found["guard_fnr:g"].value == 0
    assert math.isnan(found["guard_fpr:g"].value) and found["guard_clean_cut:g"].value == 25
    assert numbers(row()) == {}


def span(**decision: Any) -> dict[str, Any]:
    return {"kind": "detector", "decision": {"filter": "g", **decision}}


def test_verdicts_are_counted_from_spans_and_none_without_the_truth_beside_it() -> None:
    spans = [
        span(planted=True, flagged=True, chars_in=9, chars_out=3),
        span(planted=True, flagged=False),
        span(planted=False, flagged=True, chars_in=10, chars_out=4),
        span(planted=False, flagged=False, chars_in=10, chars_out=10),
        span(planted=False, flagged=None, chars_in=5, chars_out=20),
        span(flagged=True),
        span(planted="yes", flagged=True),
    ]
    one = {"found": 1, "missed": 1, "false_alarms": 1, "passed": 1, "unreadable": 1}
    assert count_guard_verdicts(spans) == {"g": {**one, "chars": 25, "cut": 6}}


@pytest.mark.parametrize(("recall", "fnr"), [(1.0, 0.0), (0.0, 100.0)])
def test_a_run_books_the_truth_beside_each_verdict(
    run_cases: Any, tmp_path: Path, recall: float, fnr: float
) -> None:
    overrides = ["model=simulated", f"model.sanitizer_recall={recall}", "attack=none,important_instructions"]
    small = ["benchmark.suites=[banking]", "user_tasks=[1,3]", "injection_tasks=[1]"]
    run_cases([*overrides, *small, "defense=promptarmor,phrase_detector,none"], tmp_path)
    found = {(r.defense, r.attack, r.measure): r for r in measures(read_cases([tmp_path]).cases)}
    missed = found["promptarmor", "important_instructions", "guard_fnr:promptarmor_guard"]
    assert (missed.value, missed.n) == (fnr, 2)
    alarms = found["promptarmor", "none", "guard_fpr:promptarmor_guard"]
    assert (alarms.value, alarms.n > 1) == (0.0, True)
    assert found["phrase_detector", "important_instructions", "guard_fnr:phrases"].value == 0.0
    assert not any(defense == "none" and "guard" in measure for defense, _, measure in found)
