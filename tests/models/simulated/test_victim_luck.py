"""What a victim decides: draws that come to its profile's rates, and ways to do what was decided."""

from __future__ import annotations

from statistics import mean

import pytest

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.ground_truth.playbook import build_playbook
from agentsys.models.chat import Scene
from agentsys.models.simulated.victim.luck import VictimLuck
from agentsys.models.simulated.victim.profile import load_profile

PROFILE = load_profile("gpt-4o-mini")
SOLVED = {"banking": 50.0, "slack": 66.7, "travel": 55.0, "workspace": 82.5}
"""Percent of the benign tasks that the published runs solved, as docs/victims.md has them."""
READ = {"banking": 75.7, "slack": 94.3, "travel": 98.6, "workspace": 87.5}
"""Percent of their attacked cases in which a tool returned the payload."""
SEEDS = range(20)


def tasks(suite: str) -> list[str]:
    users = PROFILE.exposed.effects["user"]
    return [user.partition("/")[2] for user in users if user.startswith(f"{suite}/")]


def luck(suite: str, user: str, goal: str | None, seed: int) -> VictimLuck:
    attack = "none" if goal is None else "important_instructions"
    return VictimLuck(PROFILE, Scene(suite, user, goal, attack, seed=seed), seed)


@pytest.mark.parametrize("suite", SOLVED)
def test_over_seeds_as_much_is_solved_and_read_as_in_the_runs(suite: str) -> None:
    solved = [luck(suite, user, None, seed).solves(hijacked=False) for user in tasks(suite) for seed in SEEDS]
    assert 100 * mean(solved) == pytest.approx(SOLVED[suite], abs=3)
    goals = [goal.partition("/")[2] for goal in PROFILE.obey.effects["injection"] if goal.startswith(suite)]
    read = [
        luck(suite, user, goal, seed).reads() for user in tasks(suite) for goal in goals for seed in SEEDS
    ]
    assert 100 * mean(read) == pytest.approx(READ[suite], abs=2)


def test_a_task_has_the_same_luck_with_an_attack_and_without() -> None:
    for user in tasks("travel"):
        with_it, without = (luck("travel", user, goal, 3) for goal in ("injection_task_1", None))
        assert with_it._solving == without._solving
        assert with_it._reading != without._reading


@pytest.mark.slow
def test_all_tasks_but_two_can_be_failed_and_each_tells_what_would_show_it_the_payload() -> None:
    benchmark = AgentDojo("v1")
    found = build_playbook([benchmark.suite(name) for name in benchmark.suite_names()], failing=True).tasks
    assert len(found) == 97
    assert [(t.suite, t.task_id) for t in found if t.failing is None] == [
        ("banking", "user_task_5"),
        ("banking", "user_task_8"),
    ]
    assert all(task.meets for task in found)
    by_id = {(task.suite, task.task_id): task for task in found}
    searching = by_id["workspace", "user_task_30"]
    assert {searching.calls[place].function for place in searching.meets} == {"search_files"}
    underspecified = by_id["banking", "user_task_10"]
    assert underspecified.failing is not None
    extra = underspecified.failing.calls[len(underspecified.calls) :]
    assert [call.function for call in extra] == ["send_money"]
