"""DRIFT: plan, validator and loop, with a scripted model for each role."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.task_suite import get_suite
from scripted_for_drift import (
    STOP,
    RoleModel,
    Tools,
    call,
    decisions,
    entry,
    plan,
    run,
)

from agentsys.errors import ConfigError
from agentsys.models.chat import text_of
from baselines.drift.defense import Drift
from baselines.drift.drift_plan import REFUSAL_MARK, DriftSettings, read_permission_reply

BOTH = pytest.mark.parametrize("compat", [False, True], ids=["mended", "compat"])
YES, NO = "<judge_result>Yes</judge_result>", "<judge_result>No</judge_result>"


def refusals(messages: list[Any]) -> list[str]:
    return [text_of(m) for m in messages if m["role"] == "user" and REFUSAL_MARK in text_of(m)]


@BOTH
def test_planned_calls_run_without_a_judge(compat: bool) -> None:
    model = RoleModel(
        drift_planner=plan("read_bill", "pay"),
        agent=[call("read_bill()"), call("pay(to='Bob', amount=5)"), STOP],
    )
    tools = Tools()
    messages, spans = run(model, tools, DriftSettings(compat=compat))
    assert tools.ran == ["read_bill", "pay Bob 5"]
    assert len(model.requests_of("drift_judge")) == 0
    assert [decision.get("allow") for decision in decisions(spans, "drift_validator")][:2] == [True, True]
    assert "Done." in text_of(messages[-1])


@BOTH
@pytest.mark.parametrize("action", ["pay(to='Eve', amount=9)", "mail(to='Eve')"])
def test_an_unplanned_action_that_the_judge_denies_stops_its_whole_batch(compat: bool, action: str) -> None:
    model = RoleModel(
        drift_planner=plan("read_bill"), agent=[call("read_bill()", action), STOP], drift_judge=NO
    )
    tools = Tools()
    messages, _ = run(model, tools, DriftSettings(compat=compat))
    assert tools.ran == []
    assert len(model.requests_of("drift_judge")) == 1
    assert len(refusals(messages)) == 1
    assert [m["role"] for m in messages] == ["user", "assistant", "user", "assistant"]
    assert not messages[1]["tool_calls"]


def test_the_judge_sees_no_result_and_arguments_only_on_request() -> None:
    def questions(**options: Any) -> str:
        model = RoleModel(
            drift_planner=plan("read_bill"),
            agent=[call("read_bill()"), call("mail(to='Eve')"), STOP],
            drift_judge=NO,
        )
        run(model, Tools(bill="SECRET"), **options)
        return model.questions("drift_judge")[0]

    assert "SECRET" not in questions()
    assert "Eve" not in questions()
    assert "Eve" in questions(judge_arguments=True)


@BOTH
@pytest.mark.parametrize(
    ("required", "given", "passes"),
    [
        ({"to": "Bob"}, "to='Eve'", False),
        ({"to": "Bob"}, "to='Bob Smith'", True),
        ({"to": "Bob Smith"}, "to='Bob'", True),
        ({"to": None}, "to='Eve'", True),
        ({"to": "{read_bill.name}"}, "to='Eve'", True),
        ({"amount": 5}, "to='Bob'", False),
        ({"amount": 5}, "to='Bob', amount=5", True),
    ],
)
def test_fixed_values_of_the_checklist_hold_and_open_ones_do_not(
    compat: bool, required: dict[str, Any], given: str, passes: bool
) -> None:
    model = RoleModel(
        drift_planner=plan("pay", checklist=[entry("pay", **required)]), agent=[call(f"pay({given})"), STOP]
    )
    tools = Tools()
    messages, spans = run(model, tools, DriftSettings(compat=compat))
    assert bool(tools.ran) is passes
    assert len(refusals(messages)) == (not passes)
    assert decisions(spans, "drift_validator")[0]["allow"] is passes


def test_a_refused_batch_leaves_no_trace_and_compat_counts_it_as_achieved() -> None:
    def seen(compat: bool) -> str:
        model = RoleModel(
            drift_planner=plan("pay", checklist=[entry("pay", to="Bob")]),
            agent=[call("pay(to='Eve')"), STOP],
        )
        run(model, Tools(), DriftSettings(compat=compat))
        return model.questions("agent")[1]

    assert "Called so far: []" in seen(compat=False)
    assert "Called so far: ['pay']" in seen(compat=True)


def test_a_repeated_action_is_refused_in_words_a_repeated_read_runs_and_compat_ends() -> None:
    def ran(compat: bool) -> tuple[list[str], int]:
        model = RoleModel(
            drift_planner=plan("read_bill", "pay"),
            agent=[
                call("read_bill()"),
                call("pay(to='Bob')"),
                call("read_bill()"),
                call("pay(to='Bob')"),
                STOP,
            ],
        )
        tools = Tools()
        messages, _ = run(model, tools, DriftSettings(compat=compat))
        return tools.ran, len(refusals(messages))

    assert ran(compat=False) == (["read_bill", "pay Bob 0", "read_bill"], 1)
    assert ran(compat=True) == (["read_bill", "pay Bob 0"], 0)


def test_an_unknown_tool_is_refused_and_compat_takes_it_into_the_plan() -> None:
    def first(compat: bool) -> list[Any]:
        model = RoleModel(drift_planner=plan("read_bill"), agent=[call("no_such_tool()"), STOP])
        return run(model, Tools(), DriftSettings(compat=compat))[0]

    assert len(refusals(first(compat=False))) == 1
    assert [m["error"] for m in first(compat=True) if m["role"] == "tool"] == [
        "Invalid tool no_such_tool provided."
    ]


@BOTH
def test_a_run_that_its_rounds_end_still_ends_with_the_assistant(compat: bool) -> None:
    turns = [call(f"mail(to='{number}')") for number in range(40)]
    model = RoleModel(agent=turns, drift_judge=NO)
    messages, _ = run(model, Tools(), DriftSettings(compat=compat, message_cap=1000))
    assert len(model.requests_of("agent")) == 16
    assert messages[-1]["role"] == "assistant"


@BOTH
def test_two_tasks_on_one_pipeline_do_not_know_of_each_other(compat: bool) -> None:
    suite = get_suite("v1.2.2", "banking")
    pipeline = Drift(compat=compat, permissions=dict.fromkeys([t.name for t in suite.tools], "Read")).pipeline
    model = RoleModel(drift_planner=[plan("get_iban"), "no tags at all"])
    both = pipeline(model, suite)
    for task in ("user_task_0", "user_task_1"):
        suite.run_task_with_pipeline(both, suite.user_tasks[task], None, {})
    assert "Plan: ['get_iban']" in model.questions("agent")[0]
    assert "Plan:" not in model.questions("agent")[1]


@pytest.mark.parametrize(
    ("reply", "strict", "loose"),
    [
        ("A", "Read", "Read"),
        ("B.", "Write", "Write"),
        ("C", "Execute", "Execute"),
        ("", "Write", "Read"),
        ("A. Read", "Read", "Read"),
        ("A) Read", "Read", "Read"),
        ("Read", "Read", "Read"),
        ("**Answer:** execute.", "Execute", "Read"),
        ("A. Execute", "Write", "Read"),
        ("A reading tool", "Write", "Read"),
    ],
)
def test_the_classifiers_letter_is_read(reply: str, strict: str, loose: str) -> None:
    assert read_permission_reply(reply, compat=False).value == strict
    assert read_permission_reply(reply, compat=True).value == loose


ODD = [
    "",
    "no tags",
    "<function_call>",
    "<function_call></function_call>",
    "<function_call>[[[[</function_call>",
    "<function_call>[pay(**{'to': 1})]</function_call>",
    "<function_call>[pay(to=open('x'))]</function_call>",
    "<function_call>[{}, 1, None]</function_call>",
    "<function_call>[pay(to={[]: 1})]</function_call>",
    "<function_call>[pay(\x00)]</function_call>",
    f"<function_call>{'(' * 5000}</function_call>",
    f"<function_call>[pay(to={'-' * 3000}1)]</function_call>",
    "<function_call>[pay('positional'), pay(to=-1), pay(to=(1, 2)), pay(to=b'x')]</function_call>",
    "<function_call>[read_bill]</function_call>",
    "<detected_instructions>[1, null, '']</detected_instructions>",
    "<detected_instructions>{}</detected_instructions>",
    "<detected_instructions>['", "<judge_result>", "<function_trajectory>[]</function_trajectory>",
    "<function_trajectory>read_bill, pay</function_trajectory><parameter_checklist>[{</parameter_checklist>",
    "<function_trajectory>[a]</function_trajectory><parameter_checklist>[1, {}]</parameter_checklist>",
    '[{"name": 1}, {"name": "pay", "required parameters": 5}, null]',
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    "role",
    ["agent", "drift_planner", "drift_judge", "drift_isolator", "drift_permissions", "drift_formatter"],
)
def test_malformed_replies_of_any_role_raise_nothing(compat: bool, role: str) -> None:
    for reply in ODD:
        usual: dict[str, Any] = {
            "drift_planner": plan("read_bill", "pay"),
            "agent": [call("read_bill()", "mail(to='Eve')"), call("pay(to='Bob')"), STOP],
            "drift_judge": YES,
            role: reply,
        }
        messages, _ = run(RoleModel(**usual), Tools(), DriftSettings(compat=compat))
        assert messages[-1]["role"] == "assistant"


def test_wrong_options_are_the_users_errors() -> None:
    with pytest.raises(ConfigError, match="Did you mean Read"):
        Drift(permissions={"pay": "Reads"})
    with pytest.raises(ConfigError, match="unreadable_detection"):
        Drift(unreadable_detection="drop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="message_cap"):
        Drift(message_cap=0)
