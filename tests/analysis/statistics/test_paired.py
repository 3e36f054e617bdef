"""The paired comparison: which cases are compared, what differs, and how sure one may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stored_cases import row

from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import Side
from agentsys.analysis.statistics.outcome_grid import FloatArray
from agentsys.analysis.statistics.paired import (
    Pair,
    Pairing,
    changed,
    compared,
    exposed_in_both,
    pair_up,
)
from agentsys.analysis.statistics.sign_flips import SignDraws
from agentsys.records.case_row import CaseRow

_DRAWS = SignDraws(99)


def _cases(outcomes: FloatArray, **fields: Any) -> list[CaseRow]:
    """One case per cell of a (user tasks, injection tasks) grid; 1 where the injection was carried out."""
    return [
        row(
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{injection}",
            injection_success=bool(hit),
            utility=not hit,
            **fields,
        )
        for (user, injection), hit in np.ndenumerate(outcomes)
    ]


def _pairs(first: FloatArray, second: FloatArray, suite: str = "banking") -> tuple[Pair, ...]:
    none = _cases(first, defense="none", suite=suite)
    return pair_up(none, _cases(second, defense="agentsys", suite=suite)).pairs


def test_only_cases_alike_in_all_but_the_defense_are_paired_and_the_rest_is_counted() -> None:
    baseline = _cases(np.zeros((3, 2)), defense="none")
    defense = _cases(np.zeros((4, 2)), defense="agentsys")
    defense[0] = replace(defense[0], status="error", error_kind="timeout")
    found = pair_up(baseline[:-1], defense)
    assert found == Pairing(found.pairs, errored=1, only_baseline=0, only_defense=3)
    assert len(found.pairs) == 4
    assert all(pair.baseline.user_task_id == pair.defense.user_task_id for pair in found.pairs)


@pytest.mark.parametrize(
    "field",
    [
        {"benchmark": "asb"},
        {"version": "v1"},
        {"model": "other"},
        {"simulated": True},
        {"attack": "direct"},
        {"suite": "slack"},
        {"user_task_id": "user_task_9"},
        {"injection_task_id": "injection_task_9"},
        {"epoch": 1},
    ],
)
def test_a_case_that_differs_in_anything_else_is_not_paired(field: dict[str, Any]) -> None:
    found = pair_up([row(defense="none")], [row(**field)])
    assert (found.pairs, found.only_baseline, found.only_defense) == ((), 1, 1)


def test_agentdojos_error_rule_keeps_errored_pairs() -> None:
    lost = row(status="error", error_kind="context_length")
    assert pair_up([row(defense="none")], [lost], ErrorRule.REPORT).errored == 1
    assert len(pair_up([row(defense="none")], [lost], ErrorRule.AGENTDOJO).pairs) == 1


def test_differences_per_suite_overall_and_pooled() -> None:
    pairs = _pairs(np.ones((2, 2)), np.array([[1.0, 0.0], [0.0, 0.0]]))
    pairs += _pairs(np.ones((4, 3)), np.ones((4, 3)), "slack")
    found = compared(pairs, Side.INJECTED, _DRAWS)
    assert list(found) == ["banking", "slack", "overall", "pooled"]
    assert (found["banking"].baseline, found["banking"].defense) == (1.0, 0.25)
    assert found["overall"].difference.value == pytest.approx(-0.375)
    assert found["pooled"].difference.value == pytest.approx(-3 / 16)
    assert found["pooled"].difference.n == 16


def test_pairing_takes_out_what_the_two_have_in_common() -> None:
    hard = np.zeros((20, 9))
    hard[:, :3] = 1.0
    other = hard.copy()
    other[0, 0] = other[5, 1] = 0.0
    found = compared(_pairs(hard, other), Side.INJECTED, _DRAWS)["overall"]
    assert found.difference.error.value < 0.03


def test_flips_are_found_in_both_directions() -> None:
    pairs = _pairs(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    gained = changed(pairs, Side.INJECTED, ErrorRule.REPORT, to=True)
    lost = changed(pairs, Side.INJECTED, ErrorRule.REPORT, to=False)
    assert [pair.defense.injection_task_id for pair in gained] == ["injection_task_1"]
    assert [pair.defense.injection_task_id for pair in lost] == ["injection_task_0"]
    assert changed(pairs, Side.SOLVED, ErrorRule.REPORT, to=True) == lost


def test_exposed_means_returned_by_a_tool_under_both() -> None:
    kinds = [(True, True), (True, False), (None, True), (True, None)]
    pairs = [Pair(row(exposed_raw=first), row(exposed_raw=second)) for first, second in kinds]
    assert exposed_in_both(pairs) == (pairs[0],)
