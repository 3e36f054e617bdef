"""Untrusted text and cost: each measure by hand, and what is unknown stays unknown."""

from __future__ import annotations

import math
from typing import Any

import pytest
from stored_cases import row

from agentsys.analysis.metrics import measures as cost
from agentsys.analysis.metrics.measures import RATIOS, mean_of, measures
from agentsys.records.case_row import CaseRow


def _case(number: int, **fields: Any) -> CaseRow:
    return row(user_task_id=f"user_task_{number}", **fields)


def _error(number: int, **fields: Any) -> CaseRow:
    return _case(number, status="error", error_kind="timeout", utility=False, **fields)


def test_means_rest_on_the_cases_with_a_known_value_and_without_error() -> None:
    cases = [
        _case(0, untrusted_tokens=100, exposure_rounds=2, untrusted_tokens_workers=7),
        _case(1, untrusted_tokens=50, exposure_rounds=0),
        _case(2),
        _error(3, untrusted_tokens=900, exposure_rounds=9),
    ]
    assert mean_of("untrusted_tokens", cases) == (75.0, 2)
    assert mean_of("exposure_rounds", cases) == (1.0, 2)
    assert mean_of("untrusted_tokens_workers", cases) == (7.0, 1)


def test_exposure_is_about_attacked_cases_only() -> None:
    cases = [_case(0, exposure_rounds_workers=4), _case(1, attack="none", exposure_rounds_workers=None)]
    assert mean_of("exposure_rounds_workers", cases) == (4.0, 1)
    assert math.isnan(mean_of("exposure_rounds", cases[1:]).value)


def test_a_solved_task_bears_the_cost_of_failures_and_errors() -> None:
    used = {"main": 600_000, "worker": 400_000}
    cases = [
        _case(0, cost_usd=0.25, tokens_by_role=used),
        _case(1, cost_usd=0.25, tokens_by_role=used, utility=False),
        _error(2, cost_usd=0.5, tokens_by_role=used),
    ]
    assert RATIOS["cost_per_solved_task"](cases) == 1.0
    assert RATIOS["tokens_per_solved_task"](cases) == 3_000_000
    assert math.isnan(RATIOS["cost_per_solved_task"](cases[1:]))


def test_attacks_that_succeed_are_set_against_what_attacked_cases_cost() -> None:
    used = {"main": 500_000}
    cases = [
        _case(0, cost_usd=0.25, tokens_by_role=used, injection_success=True),
        _case(1, cost_usd=0.25, tokens_by_role=used),
        _error(2, injection_success=True, cost_usd=0.5, tokens_by_role=used),
        _case(3, attack="none", cost_usd=100.0, tokens_by_role=used),
    ]
    assert RATIOS["asr_per_dollar"](cases) == 1.0
    assert round(RATIOS["asr_per_million_tokens"](cases), 9) == round(1 / 1.5, 9)


@pytest.mark.parametrize("measure", RATIOS)
def test_one_case_without_a_known_cost_makes_the_ratio_unknown(measure: str) -> None:
    known = _case(0, cost_usd=0.5, tokens_by_role={"main": 10}, injection_success=True)
    assert RATIOS[measure]([known]) > 0
    assert math.isnan(RATIOS[measure]([known, _case(1)]))


def test_where_nothing_was_spent_nothing_is_said_of_attacks_per_dollar() -> None:
    assert math.isnan(RATIOS["asr_per_dollar"]([_case(0, cost_usd=0.0, injection_success=True)]))


def test_roles_add_up_to_all_tokens() -> None:
    cases = [
        _case(0, tokens_by_role={"main": 10, "worker": 20}),
        _case(1, tokens_by_role={"main": 30}),
        _case(2),
    ]
    found = cost.tokens_per_role(cases)
    assert found == {"main": (20.0, 2), "worker": (10.0, 2)}
    assert sum(mean.value for mean in found.values()) == cost.tokens(cases[:2]) / 2


def test_cached_tokens_and_dollars_per_role_rest_on_the_cases_that_tell() -> None:
    cases = [
        _case(
            0,
            tokens_by_role={"main": 10, "worker": 20},
            cached_by_role={"main": 8},
            cost_by_role={"main": 0.5, "worker": 0.25},
        ),
        _case(1, tokens_by_role={"main": 30}, cost_by_role={"main": 0.5, "worker": None}),
        _case(2),
    ]
    assert cost.cached_tokens_per_role(cases) == {"main": (4.0, 2), "worker": (0.0, 2)}
    assert cost.dollars_per_role(cases) == {"main": (0.5, 1), "worker": (0.25, 1)}
    found = {line.measure for line in measures(cases)}
    assert {"cached_tokens_per_case:main", "usd_per_case:worker"} <= found


def test_the_long_form_has_every_cell_and_suite_and_all_suites_pooled() -> None:
    cases = [
        _case(0, suite="slack", untrusted_tokens=10, tokens_by_role={"main": 5}),
        _case(1, suite="banking", untrusted_tokens=40),
        _case(2, suite="banking", untrusted_tokens=40, simulated=True),
        row(user_task_id="injection_task_3", untrusted_tokens=9000),
    ]
    found = {(line.model, line.suite, line.measure): (line.value, line.n) for line in measures(cases)}
    assert found["gpt-4o", "slack", "untrusted_tokens"] == (10.0, 1)
    assert found["gpt-4o", "pooled", "untrusted_tokens"] == (25.0, 2)
    assert found["gpt-4o", "slack", "tokens_per_case:main"] == (5.0, 1)
    assert found["gpt-4o (simulated)", "pooled", "untrusted_tokens"] == (40.0, 1)
    assert [line.suite for line in measures(cases)][-1] == "pooled"
