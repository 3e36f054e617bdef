"""TAP against a scripted target: the tree's shape, its budget, its pruning."""

from __future__ import annotations

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.tap import TapAttack


@pytest.mark.parametrize(
    ("branching", "width", "depth", "budget"), [(2, 3, 4, 18), (3, 3, 3, 21), (1, 1, 5, 5), (4, 10, 2, 20)]
)
def test_without_success_the_budget_is_the_trees_size(
    branching: int, width: int, depth: int, budget: int
) -> None:
    attack = TapAttack(branching, width, depth)
    assert attack.budget == budget
    assert len(attack.search(QUEST, Outcomes(Says()))) == budget


def test_only_the_best_leaves_are_refined() -> None:
    target = Outcomes(Says(), {1: 3, 2: 7, 3: 5})
    TapAttack(3, 2, 2).search(QUEST, target)
    assert [attempt.place.parent for attempt in target.made] == [None] * 3 + [2] * 3 + [3] * 3
    assert [attempt.place.stream for attempt in target.made] == [1, 2, 3, 2, 2, 2, 3, 3, 3]


def test_a_pruned_candidate_costs_an_attempt_and_is_not_refined() -> None:
    model = Says([reply("new_password is a fine word.")])
    target = Outcomes(model)
    made = TapAttack(2, 2, 2).search(QUEST, target)
    assert "off topic" in str(made[0].proposal.refused)
    assert [attempt.place.parent for attempt in made] == [None, None, 2, 2]


def test_a_tree_whose_leaves_are_all_pruned_ends() -> None:
    assert len(TapAttack(2, 2, 5).search(QUEST, Outcomes(Says([reply("x"), reply("y")])))) == 2


def test_the_first_success_ends_the_search() -> None:
    assert len(TapAttack(2, 3, 4).search(QUEST, Outcomes(Says(), {4: 10}))) == 4


def test_no_two_requests_of_a_tree_are_alike() -> None:
    model = Says([reply(QUEST.goal)] * 18)
    TapAttack(2, 3, 4).search(QUEST, Outcomes(model))
    assert len({str(request.messages) for request in model.requests}) == 18
