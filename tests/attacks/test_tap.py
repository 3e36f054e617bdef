"""TAP against a scripted target: the tree's shape, its budget, its pruning, its width under ties."""

from __future__ import annotations

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.search_attacks import TapAttack


@pytest.mark.parametrize(
    ("branching", "width", "depth", "budget"),
    [(2, 3, 4, 18), (3, 3, 3, 21), (1, 1, 5, 5), (4, 10, 2, 20), (4, 10, 10, 340)],
)
def test_without_success_the_budget_is_the_start_text_and_the_trees_size(
    branching: int, width: int, depth: int, budget: int
) -> None:
    attack = TapAttack(branching, width, depth)
    assert attack.budget == budget + 1
    assert len(attack.search(QUEST, Outcomes(Says()))) == budget + 1


def test_only_the_best_leaves_are_refined() -> None:
    target = Outcomes(Says(), {2: 3, 3: 7, 4: 5})
    TapAttack(3, 2, 2).search(QUEST, target)
    assert [attempt.place.parent for attempt in target.made] == [None] * 4 + [3] * 3 + [4] * 3
    assert [attempt.place.stream for attempt in target.made] == [0, 1, 2, 3, 2, 2, 2, 3, 3, 3]


def test_a_candidate_that_the_judge_finds_off_topic_costs_an_attempt_and_is_not_refined() -> None:
    model = Says([reply("new_password is a fine word."), reply("go")], off=["fine word"])
    made = TapAttack(2, 2, 2).search(QUEST, Outcomes(model))
    assert "off topic" in str(made[1].proposal.refused)
    assert [attempt.place.parent for attempt in made] == [None, None, None, 3, 3]
    assert len(model.judged) == 4
    assert model.judged[0].role == "attacker_judge"


def test_the_first_success_ends_the_search() -> None:
    assert len(TapAttack(2, 3, 4).search(QUEST, Outcomes(Says(), {4: 10}))) == 4


def test_which_of_equal_leaves_go_on_is_drawn_by_the_seed_and_repeats() -> None:
    def parents(seed: int) -> list[int | None]:
        made = TapAttack(3, 4, 3, seed=seed).search(QUEST, Outcomes(Says(), rest=5))
        return [attempt.place.parent for attempt in made]

    assert parents(1) == parents(1)
    assert len({tuple(parents(seed)) for seed in range(6)}) > 1
