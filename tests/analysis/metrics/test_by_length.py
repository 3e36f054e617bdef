"""Success by length, counted on a handful of cases by hand."""

from __future__ import annotations

import pytest
from stored_cases import row

from agentsys.analysis.metrics.asr_where_returned import AsrWhereReturned
from agentsys.analysis.metrics.by_length import asr_by_length, asr_by_round, utility_by_length, without_length
from agentsys.analysis.metrics.rates import measure, number_in
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.records.case_row import CaseRow

RULE, FEW = ErrorRule.REPORT, Resampler(20)


def attacked(task: int, hit: bool, **fields: object) -> CaseRow:
    return row(user_task_id=f"user_task_{task}", injection_success=hit, **fields)


def benign(task: int, solved: bool, length: int | None, **fields: object) -> CaseRow:
    named = {"user_task_id": f"user_task_{task}", "attack": "none", "utility": solved}
    return row(**named, ground_truth_length=length, **fields)


def test_attacks_are_told_apart_by_length_and_round_and_those_that_never_appeared_are_left_out() -> None:
    cases = [
        attacked(0, True, trajectory_length=2, injection_round=1),
        attacked(1, False, trajectory_length=2, injection_round=1),
        attacked(2, True, trajectory_length=2, injection_round=2),
        attacked(3, True, trajectory_length=2, injection_round=None),
        attacked(4, True, trajectory_length=5, injection_round=1),
        row(attack="none", trajectory_length=2, injection_round=1),
    ]
    found = asr_by_round(cases, [2], RULE, FEW)
    assert {pair: (number.value, number.n) for pair, number in found.items()} == {
        (2, 1): (50.0, 2),
        (2, 2): (100.0, 1),
    }


def test_a_number_tells_of_the_errored_cases_beside_it() -> None:
    here = {"trajectory_length": 2, "injection_round": 1}
    errored = attacked(1, True, status="error", error_kind="server_error", **here)
    cases = [attacked(0, True, **here), errored]
    (number,) = asr_by_round(cases, [2], RULE, FEW).values()
    assert (number.value, number.n, number.errors) == (100.0, 1, 1)
    (line,) = [r for r in measure(cases) if (r.metric, r.suite) == ("targeted_asr", "banking")]
    assert number_in(line) == (100.0, line.ci_low, line.ci_high, 1, 1)


def test_short_and_long_tasks_add_up_to_the_benign_utility() -> None:
    cases = [benign(0, True, 3), benign(1, True, 4), benign(2, False, 1), benign(3, True, 1, suite="slack")]
    found = utility_by_length([*cases, attacked(0, True, utility=True, ground_truth_length=1)], RULE, FEW)
    assert found["short"].value == pytest.approx((100 / 3 + 100) / 2)
    assert found["long"].value == pytest.approx((100 / 3) / 2)
    assert utility_by_length([attacked(0, True, ground_truth_length=1)], RULE, FEW) == {}


def test_a_buckets_share_is_of_all_attacked_cases_and_the_last_holds_the_longer_ones() -> None:
    cases = [
        attacked(0, True, ground_truth_length=1),
        attacked(1, False, ground_truth_length=1),
        attacked(2, True, ground_truth_length=7),
        attacked(3, True, ground_truth_length=12),
        benign(4, True, 1),
    ]
    found = asr_by_length(cases, RULE, FEW)
    assert {length: number.value for length, number in found.items() if number.value} == {1: 25.0, 7: 50.0}
    assert {number.n for number in found.values()} == {4}
    assert asr_by_length([benign(4, True, 1)], RULE, FEW) == {}


def test_cases_without_a_length_are_counted_and_tasks_run_alone_are_not() -> None:
    alone = benign(0, True, None, suite="slack")
    named = row(user_task_id="injection_task_1", attack="none", ground_truth_length=None)
    assert without_length([benign(0, True, None), alone, benign(1, True, 2), benign(2, True, 3), named]) == 2


def test_success_where_returned_is_of_cases_in_which_a_tool_returned_the_payload() -> None:
    hit = AsrWhereReturned().hit
    assert [hit(attacked(0, True, exposed_raw=seen)) for seen in (True, False, None)] == [True, None, None]
