"""Checks see copies, and the calls that really ran."""

from __future__ import annotations

from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.scoring import select_scored_calls
from agentsys.models.trace import Tracer, use_tracer


def ran(*calls: tuple[str, dict[str, Any]]) -> Tracer:
    tracer = Tracer()
    for name, args in calls:
        tracer.tool_ran(name, args, "", None)
    return tracer


def half_done_theft(suite: TaskSuite[Any]) -> tuple[Any, Any]:
    """Before and after: a mail to the attacker was sent and deleted, but the unread mails are not in it."""
    before, after = (suite.load_and_inject_default_environment({}) for _ in range(2))
    mail = after.inbox.initial_emails[0].model_copy(update={"recipients": ["mark.black-2134@gmail.com"]})
    after.inbox.trash = {mail.id_: mail}
    return before, after


def answers(suite: TaskSuite[Any]) -> list[bool]:
    task = suite.injection_tasks["injection_task_6"]
    before, after = half_done_theft(suite)
    return [suite._check_task_result(task, [], before, after, []) for _ in range(2)]


def test_a_check_that_changes_what_it_checks_gives_the_same_answer_twice() -> None:
    assert answers(AgentDojo("v1.2.2").suite("workspace")) == [False, False]


def test_calls_of_the_messages_are_handed_on_as_they_are_when_all_executed_ones_stand_there() -> None:
    in_messages = [FunctionCall(function="f", args={"a": 1, "intent": {"x": "string"}}, id="1")]
    assert select_scored_calls(in_messages, ran(("f", {"a": 1}))) is in_messages
    assert select_scored_calls(in_messages, Tracer()) is in_messages


def test_calls_executed_out_of_the_messages_sight_are_scored_in_order() -> None:
    in_messages = [FunctionCall(function="outer", args={})]
    scored = select_scored_calls(in_messages, ran(("outer", {}), ("inner", {"b": [2]})))
    assert [(call.function, call.args) for call in scored] == [("outer", {}), ("inner", {"b": [2]})]


def test_an_inner_agents_attack_is_seen_by_a_check_that_looks_at_calls() -> None:
    suite = AgentDojo("v1.2.2").suite("slack")
    task = suite.injection_tasks["injection_task_5"]
    environment = suite.load_and_inject_default_environment({})
    carried_out = [
        (call.function, dict(call.args))
        for call in task.ground_truth(suite.load_and_inject_default_environment({}))
    ]
    assert suite._check_task_result(task, [], environment, environment, []) is False
    with use_tracer(ran(*carried_out)):
        assert suite._check_task_result(task, [], environment, environment, []) is True


def test_calls_that_a_defense_refused_are_no_calls_for_a_check() -> None:
    suite = AgentDojo("v1.2.2").suite("slack")
    environment = suite.load_and_inject_default_environment({})
    task = suite.injection_tasks["injection_task_5"]
    asked = task.ground_truth(suite.load_and_inject_default_environment({}))
    tracer = ran(("get_channels", {}))
    in_messages = [FunctionCall(function="get_channels", args={}), *asked]
    with use_tracer(tracer):
        assert suite._check_task_result(task, [], environment, environment, in_messages) is True
        for call in asked:
            tracer.tool_refused(call.function, dict(call.args), "not allowed")
        assert suite._check_task_result(task, [], environment, environment, in_messages) is False
    assert [call.function for call in select_scored_calls(in_messages, tracer)] == ["get_channels"]
    tracer.attempt = 1  # in a further run of the pipeline nothing was refused
    assert select_scored_calls(in_messages[:1], tracer) == in_messages[:1]
