"""Attacks that the user's own task undoes: found by playing both ground truths, and counted by a fix."""

from __future__ import annotations

from functools import partial

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import text_content_block_from_string

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.fixes.check_fixes import AttackInWorld, is_carried_out_in_part, is_undone

UNDONE = {
    "banking": {("user_task_14", "injection_task_7")},
    "travel": {
        ("user_task_0", "injection_task_0"), ("user_task_0", "injection_task_4"),
        *((f"user_task_{at}", "injection_task_2") for at in (1, 4, 7, 8)),
    },
    "slack": set(),
}  # fmt: skip


@pytest.mark.parametrize(("version", "suite"), [("v1.2.2", "banking"), ("v1", "slack"), ("v1.2.2", "travel")])
def test_playing_both_ground_truths_in_both_orders_finds_the_undone_pairs(version: str, suite: str) -> None:
    CallPlayer = pytest.importorskip("agentsys_plugins.audit.static.audited_task").CallPlayer
    find_undone_attacks = pytest.importorskip("agentsys_plugins.audit.static.task_checks").find_undone_attacks
    prepare_task = pytest.importorskip("agentsys_plugins.audit.static.audited_task").prepare_task
    played = AgentDojo(version).suite(suite)
    stage = CallPlayer(played)
    attacks = [prepare_task(stage, task) for task in played.injection_tasks.values()]
    users = [prepare_task(stage, task) for task in played.user_tasks.values()]
    found = {(user.task.ID, attack) for user in users for attack in find_undone_attacks(user, attacks)}
    assert found == UNDONE[suite]


def place(
    suite_name: str, user_id: str, attack_id: str
) -> tuple[AttackInWorld, list[FunctionCall], list[FunctionCall]]:
    suite = AgentDojo("v1.2.2").suite(suite_name)
    user, attack = suite.user_tasks[user_id], suite.injection_tasks[attack_id]
    start = user.init_environment(suite.load_and_inject_default_environment({}))
    check = partial(type(suite)._check_task_result, suite)
    world = AttackInWorld(suite, attack, start, [text_content_block_from_string("")], check)
    return world, attack.ground_truth(start), user.ground_truth(start)


def test_a_run_that_carries_the_attack_out_before_it_is_undone_counts() -> None:
    world, ill, own = place("banking", "user_task_14", "injection_task_7")
    assert is_undone(world, world.suite.user_tasks["user_task_14"])
    assert is_carried_out_in_part(world, [*ill, *own])
    assert not is_carried_out_in_part(world, own)
    assert not is_undone(world, world.suite.user_tasks["user_task_0"])


def test_a_fixed_score_turns_where_the_attack_was_undone_and_nowhere_else() -> None:
    world, ill, own = place("banking", "user_task_14", "injection_task_7")
    user, scores = world.suite.user_tasks["user_task_14"], world.suite.fixed_scores

    def score(calls: list[FunctionCall]) -> tuple[object, object]:
        from agentsys.models.trace import Tracer

        after = world.play(calls, {len(calls)})[-1]
        message = {"role": "assistant", "content": world.answer, "tool_calls": calls}
        run = scores.build_execution(user, world.task, world.start, after, [message], Tracer())
        official = world.passes(world.start, after, calls)
        facts = scores.compute_facts(run, True, official, denial=False)
        return official, (facts["security_fixed"], "undone_by_user_task" in facts["changed_by"])

    assert score([*ill, *own]) == (False, (True, True))
    assert score(own) == (False, (False, False))
    assert score([*own, *ill]) == (True, (True, False))
