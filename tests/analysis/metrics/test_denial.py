"""Denial of service beside the same tasks without attack: what the model fails anyway is no success."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_cases import row

from agentsys.analysis.metrics.denial import ASR_WHERE_SOLVED, UTILITY_CHANGE, Denial, denials, denies_service
from agentsys.analysis.metrics.rates import TARGETED_ASR, measure
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.records.case_row import CaseRow


def benign(task: int, *, solved: bool, **fields: Any) -> CaseRow:
    return row(**({"attack": "none", "user_task_id": f"user_task_{task}", "utility": solved} | fields))


def denied(task: int, *, solved: bool, **fields: Any) -> CaseRow:
    plain = {"attack": "dos", "user_task_id": f"user_task_{task}", "utility": solved}
    return row(**(plain | {"injection_success": not solved} | fields))


def both(*outcomes: tuple[bool, bool], **fields: Any) -> list[CaseRow]:
    """Tasks 0, 1, ...: (solved without attack, solved under attack)."""
    cases = []
    for task, (before, under) in enumerate(outcomes):
        cases += [benign(task, solved=before, **fields), denied(task, solved=under, **fields)]
    return cases


def only(cases: list[CaseRow]) -> Denial:
    (found,) = denials(cases, replicates=50)
    return found


def overall(found: Denial) -> dict[str, float]:
    return {one.metric: one.value for one in found.rows if one.suite == OVERALL}


def test_what_the_model_fails_without_attack_is_no_success_of_the_attack() -> None:
    cases = both((False, False), (False, False), (True, False), (True, True), (False, True))
    found = only(cases)
    official = [one for one in measure(cases, replicates=50) if one.metric == TARGETED_ASR]
    assert official[0].value == 60.0
    assert overall(found) == {ASR_WHERE_SOLVED: 50.0, UTILITY_CHANGE: 0.0}
    assert (found.pairs, found.lost, found.gained, found.unpaired) == (5, 1, 1, 0)
    assert [one.n for one in found.rows if one.suite == OVERALL] == [2, 5]


def test_overall_is_the_unweighted_mean_of_suites_that_have_solved_tasks() -> None:
    cases = both((True, False), (True, True), (True, True), (True, True))
    cases += both((True, False), suite="slack") + both((False, False), suite="travel")
    found = only(cases)
    suites = {one.suite: one.value for one in found.rows if one.metric == ASR_WHERE_SOLVED}
    assert suites == {"banking": 25.0, "slack": 100.0, "overall": 62.5, "pooled": 40.0}


def test_without_a_solved_task_the_share_is_absent_and_the_change_is_not() -> None:
    found = only(both((False, False), (False, True)))
    assert overall(found) == {UTILITY_CHANGE: 50.0}


def test_errored_and_unpaired_cases_are_left_out_and_counted() -> None:
    cases = both((True, False), (True, True))
    cases += [denied(7, solved=False), benign(8, solved=True)]
    cases += [benign(9, solved=True), denied(9, solved=False, status="error", error_kind="refused")]
    found = only(cases)
    assert (found.pairs, found.unpaired) == (2, 2)
    assert overall(found)[ASR_WHERE_SOLVED] == 50.0


@pytest.mark.parametrize(
    ("label", "expected"),
    [("dos", True), ("swearwords_dos", True), ("dos(n=2)", True), ("direct", False), ("dos_like", False)],
)
def test_denials_are_known_by_agentdojos_names(label: str, expected: bool) -> None:
    assert denies_service(label) is expected


def test_a_simulated_model_is_marked() -> None:
    assert only(both((True, False), simulated=True)).cell.model.endswith(" (simulated)")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_the_counts_say_the_same_as_the_rates(outcomes: list[tuple[bool, bool]]) -> None:
    found = only(both(*outcomes))
    solved = sum(before for before, _ in outcomes)
    change = 100 * (found.gained - found.lost) / len(outcomes)
    assert overall(found)[UTILITY_CHANGE] == pytest.approx(change)
    assert overall(found).get(ASR_WHERE_SOLVED, math.nan) == pytest.approx(
        100 * found.lost / solved if solved else math.nan, nan_ok=True
    )
