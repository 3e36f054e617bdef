"""The knowledge: draws that repeat, requests and goals found in text."""

from __future__ import annotations

from dataclasses import replace

from simulated_playbook import PLAYBOOK, PROMPT, STEAL, TASK, TOOLS, knowledge

from agentsys.models.chat import Scene
from agentsys.simulated.playbook_index import Playbook, PlaybookIndex
from agentsys.simulated.simulated_role import SimulatedOptions, make_knowledge

SCENE = Scene("bank", "user_task_0", "injection_task_0", "direct")


def draws(scene: Scene | None, probability: float = 0.5) -> list[bool]:
    made = make_knowledge(PlaybookIndex(PLAYBOOK), SimulatedOptions(), scene)
    return [made.draw(probability, "what", str(number)) for number in range(200)]


def test_draws_repeat_in_the_same_case_and_seed() -> None:
    assert draws(SCENE) == draws(SCENE)


def test_draws_differ_with_seed_epoch_and_either_task() -> None:
    others = [
        replace(SCENE, seed=1),
        replace(SCENE, epoch=1),
        replace(SCENE, user_task_id="user_task_1"),
        replace(SCENE, injection_task_id="injection_task_1"),
        None,
    ]
    assert all(draws(SCENE) != draws(other) for other in others)


def test_draws_come_true_about_as_often_as_they_should() -> None:
    assert 70 <= sum(draws(SCENE)) <= 130
    assert not any(draws(SCENE, 0.0))
    assert all(draws(SCENE, 1.0))


def test_tools_tell_suites_apart_that_share_a_request_and_a_goal() -> None:
    shop_calls = (replace(TASK.calls[0], function="browse"),)
    shop = replace(TASK, suite="shop", calls=shop_calls, facts=())
    goal = replace(STEAL, suite="shop", calls=shop_calls)
    made = make_knowledge(PlaybookIndex(Playbook((TASK, shop), (STEAL, goal))), SimulatedOptions(), None)
    assert made.find_task(PROMPT, ("browse",)) == shop
    assert made.find_task(PROMPT, TOOLS) == TASK
    assert made.find_goals(STEAL.goal, ("browse",)) == [goal]
    assert made.find_goals(STEAL.goal, ("nothing",)) == []
    assert len(made.find_goals(STEAL.goal)) == 1


def test_a_value_is_grounded_only_where_it_stands_whole() -> None:
    assert knowledge().is_grounded("Mom's Home", '{"a": "Mom\'s\\n  Home"}')
    assert not knowledge().is_grounded("5", "2024-05-15")
