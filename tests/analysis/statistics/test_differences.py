"""Pairs of cases, their differences, and sign flips."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paired_grids import difference_of, grid_of
from stored_cases import row, row_grid

from agentsys.analysis.statistics.case_outcomes import (
    Pair,
    Pairing,
    filter_exposed_pairs,
    pair_cases,
    split_changed_pairs,
)
from agentsys.analysis.statistics.differences import (
    SignDraws,
    compare_pairs,
    list_sign_patterns,
    make_mean_difference,
)
from agentsys.analysis.statistics.outcome_grid import CountedOutcome, ErrorRule, FloatArray, Side
from agentsys.records.case_row import CaseRow

_DRAWS = SignDraws(99)


def _cases(outcomes: FloatArray, **fields: Any) -> list[CaseRow]:
    """One case per cell of a (user tasks, injection tasks) grid; 1 where the injection was carried out."""
    users, injections = outcomes.shape
    cases = row_grid(users, injections, lambda *pair: bool(outcomes[pair]), **fields)
    return [replace(case, utility=not case.injection_success) for case in cases]


def _pairs(first: FloatArray, second: FloatArray, suite: str = "banking") -> tuple[Pair, ...]:
    none = _cases(first, defense="none", suite=suite)
    return pair_cases(none, _cases(second, defense="agentsys", suite=suite)).pairs


def test_only_cases_of_the_same_tasks_are_paired_and_the_rest_is_counted() -> None:
    baseline = _cases(np.zeros((3, 2)), defense="none")
    defense = _cases(np.zeros((4, 2)), defense="agentsys")
    defense[0] = replace(defense[0], status="error", error_kind="timeout")
    found = pair_cases(baseline[:-1], defense)
    assert found == Pairing(found.pairs, errored=1, only_baseline=0, only_defense=3)
    assert len(found.pairs) == 4
    assert all(pair.baseline.user_task_id == pair.defense.user_task_id for pair in found.pairs)


@pytest.mark.parametrize(
    "field",
    [
        {"suite": "slack"},
        {"user_task_id": "user_task_9"},
        {"injection_task_id": "injection_task_9"},
        {"epoch": 1},
    ],
)
def test_a_case_that_differs_in_anything_else_is_not_paired(field: dict[str, Any]) -> None:
    found = pair_cases([row(defense="none")], [row(**field)])
    assert (found.pairs, found.only_baseline, found.only_defense) == ((), 1, 1)


def test_agentdojos_error_rule_keeps_errored_pairs() -> None:
    lost = row(status="error", error_kind="context_length")
    assert pair_cases([row(defense="none")], [lost], ErrorRule.REPORT).errored == 1
    assert len(pair_cases([row(defense="none")], [lost], ErrorRule.AGENTDOJO).pairs) == 1


def test_differences_per_suite_overall_and_pooled() -> None:
    pairs = _pairs(np.ones((2, 2)), np.array([[1.0, 0.0], [0.0, 0.0]]))
    pairs += _pairs(np.ones((4, 3)), np.ones((4, 3)), "slack")
    found = compare_pairs(pairs, Side.INJECTED, _DRAWS)
    assert list(found) == ["banking", "slack", "overall", "pooled"]
    assert (found["banking"].rate_before, found["banking"].rate_after) == (1.0, 0.25)
    assert found["overall"].value == pytest.approx(-0.375)
    assert found["pooled"].value == pytest.approx(-3 / 16)
    assert found["pooled"].n == 16


def test_pairing_takes_out_what_the_two_have_in_common() -> None:
    hard = np.zeros((20, 9))
    hard[:, :3] = 1.0
    other = hard.copy()
    other[0, 0] = other[5, 1] = 0.0
    found = compare_pairs(_pairs(hard, other), Side.INJECTED, _DRAWS)["overall"]
    assert found.error.value < 0.03


def test_flips_are_found_in_both_directions() -> None:
    pairs = _pairs(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    gained, lost = split_changed_pairs(pairs, Side.INJECTED)
    assert [pair.defense.injection_task_id for pair in gained] == ["injection_task_1"]
    assert [pair.defense.injection_task_id for pair in lost] == ["injection_task_0"]
    assert split_changed_pairs(pairs, Side.SOLVED) == (lost, gained)


def test_exposed_means_returned_by_a_tool_under_both() -> None:
    kinds = [(True, True), (True, False), (None, True), (True, None)]
    no = CountedOutcome(utility=False, injection_success=False)
    pairs = [Pair(row(exposed_raw=first), row(exposed_raw=second), no, no) for first, second in kinds]
    assert filter_exposed_pairs(pairs) == (pairs[0],)


def test_signs_depend_on_the_seed_the_suite_the_way_and_the_tasks_alone() -> None:
    tasks = ("a", "b", "c")
    first = SignDraws(50, 7).draw_signs("banking", "user", tasks)
    assert set(np.unique(first)) == {-1.0, 1.0}
    assert (first == SignDraws(50, 7).draw_signs("banking", "user", tasks)).all()
    others = [
        SignDraws(50, 8).draw_signs("banking", "user", tasks),
        SignDraws(50, 7).draw_signs("slack", "user", tasks),
        SignDraws(50, 7).draw_signs("banking", "injection", tasks),
        SignDraws(50, 7).draw_signs("banking", "user", ("a", "b", "d")),
    ]
    assert not any((first == other).all() for other in others)


def test_signs_are_fair_and_independent() -> None:
    signs = SignDraws(20_000).draw_signs("s", "user", tuple("abcde"))
    assert np.abs(signs.mean(axis=0)).max() < 0.03
    assert np.abs(np.corrcoef(signs.T) - np.eye(5)).max() < 0.03


def test_every_pattern_is_listed_once_up_to_the_overall_sign() -> None:
    patterns = {tuple(row) for row in list_sign_patterns(4)}
    assert len(patterns) == 8
    mirrored = {tuple(-sign for sign in row) for row in patterns}
    assert patterns | mirrored == set(itertools.product((-1.0, 1.0), repeat=4))
    assert (1.0,) * 4 in patterns


def _by_definition(parts: list[FloatArray], at: float, way: int) -> float:
    """p of all flips of one kind of task, straight from the definition; one case per cell."""
    cells = [(part - at) / part.size / len(parts) for part in parts]

    def statistic(flipped: list[FloatArray]) -> float:
        variance = 0.0
        for x in flipped:
            a, b, c = (x.sum(axis=1) ** 2).sum(), (x.sum(axis=0) ** 2).sum(), (x**2).sum()
            variance += max(a + b - c, a, b)
        return float(abs(sum(x.sum() for x in flipped)) / np.sqrt(variance))

    counts = [part.shape[way] for part in parts]
    observed, found = statistic(cells), []
    for signs in itertools.product((-1.0, 1.0), repeat=sum(counts)):
        pieces = np.split(np.array(signs), np.cumsum(counts)[:-1])
        turned = [x * (s[:, None] if way == 0 else s) for x, s in zip(cells, pieces, strict=True)]
        found.append(statistic(turned) >= observed * (1 - 1e-9))
    return float(np.mean(found))


@pytest.mark.parametrize("at", [0.0, 0.17, -0.4])
@pytest.mark.parametrize("seed", range(3))
def test_p_of_few_tasks_is_that_of_the_definition(seed: int, at: float) -> None:
    generator = np.random.default_rng(seed)
    parts = [generator.integers(-1, 2, shape).astype(float) for shape in ((4, 3), (5, 2))]
    difference = make_mean_difference([grid_of(part, suite=str(n)) for n, part in enumerate(parts)])
    by_user, by_injection = difference.references
    assert by_user.complete
    assert by_injection.complete
    assert by_user.compute_p(at) == pytest.approx(_by_definition(parts, at, 0))
    assert by_injection.compute_p(at) == pytest.approx(_by_definition(parts, at, 1))


def test_drawn_flips_agree_with_all_there_are() -> None:
    generator = np.random.default_rng(5)
    change = generator.integers(-1, 2, (13, 4)).astype(float)
    change[:, 0] = 1.0
    (by_user, _) = difference_of(change).references
    assert not by_user.complete
    assert by_user.compute_p(0.0) == pytest.approx(_by_definition([change], 0.0, 0), abs=0.015)


def test_drawn_flips_are_never_p_zero() -> None:
    (by_user, _) = difference_of(-np.ones((40, 30)), draws=99).references
    assert by_user.compute_p(0.0) == 0.01
