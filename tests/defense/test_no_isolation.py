"""Variants: the no-isolation ablation, and what each says of itself."""

from __future__ import annotations

import pytest
from scripted_for_defense import LABELS, RepeatingModel, Tools, call, run

from agentsys.defense.agentsys import AgentSys
from agentsys.models.chat import text_of

READ = [call("read_note", name="todo")]
PAY = [call("send_money", to="eve", amount=9.0)]


def test_raw_outputs_stand_in_the_context_and_tools_take_no_intent() -> None:
    outcome = run({"agent": [READ, "ok"], "privileges": [LABELS]}, Tools(note="RAW"), isolation=False)
    assert outcome.results() == ["RAW"]
    assert all("intent" not in tool.parameters["properties"] for tool in outcome.model.requests[0].tools)


def test_an_allowed_command_runs_and_a_query_is_not_judged() -> None:
    replies = {"agent": [READ, PAY, "ok"], "privileges": [LABELS], "validator": ["True"]}
    outcome = run(replies, tools := Tools(note="n"), isolation=False)
    assert tools.names_run() == ["read_note", "send_money"] and outcome.model.used_up


def test_a_denial_cleans_all_results_and_the_step_is_retried() -> None:
    replies = {
        "agent": [READ, READ, PAY, "ok"],
        "privileges": [LABELS],
        "validator": ["False"],
        "sanitizer": ['{"spans": ["EVIL"]}'] * 2,
    }
    outcome = run(replies, tools := Tools(note="a EVIL b"), isolation=False)
    assert outcome.results() == ["a  b", "a  b"]
    assert tools.names_run() == ["read_note", "read_note"]
    assert all(message.get("tool_calls") != PAY for message in outcome.messages)


def test_after_the_budget_the_refused_call_is_answered_with_denied_and_the_others_run() -> None:
    turn = [call("ping"), *PAY]
    replies = {"agent": [turn, turn, turn, "ok"], "privileges": [LABELS], "validator": ["False"] * 3}
    outcome = run(replies, tools := Tools(note="n"), isolation=False)
    assert outcome.results() == ["", {"error": "denied", "tool_ran": False}]
    assert tools.names_run() == ["ping"] and outcome.model.used_up


def test_without_sanitizer_a_denied_call_is_refused_at_once() -> None:
    replies = {"agent": [READ, PAY, "ok"], "privileges": [LABELS], "validator": ["False"]}
    outcome = run(replies, Tools(note="n"), isolation=False, sanitizer=False)
    assert outcome.results() == ["n", {"error": "denied", "tool_ran": False}]


def test_the_validator_never_reads_an_output() -> None:
    replies = {"agent": [READ, PAY, "ok"], "privileges": [LABELS], "validator": ["True"]}
    (request,) = run(replies, Tools(note="CANARY"), isolation=False).model.asked("validator")
    assert "CANARY" not in "".join(text_of(message) for message in request.messages)


def test_tool_errors_and_own_mistakes_are_shown_as_agentdojo_shows_them() -> None:
    turns = [[call("explode", tags=["a"])], [call("fly")], [call("explode", tags=3)], "ok"]
    replies = {"agent": turns, "privileges": [LABELS], "validator": ["True"]}
    outcome = run(replies, Tools(error="boom"), isolation=False)
    results = [message for message in outcome.messages if message["role"] == "tool"]
    assert [message["error"] for message in results] == ["ValueError: boom", None, None]
    assert "'fly'" in text_of(results[1]) and "tags" in text_of(results[2])


def test_an_agent_that_never_stops_is_stopped_after_its_rounds() -> None:
    model = RepeatingModel({"agent": [[call("fly")]]})
    outcome = run(model, Tools(), isolation=False, main_steps=2)
    assert len(model.asked("agent")) == 3 and outcome.spans("main")[0].decision == {"finished": False}


def test_a_variant_describes_itself_as_it_is_set() -> None:
    isolated, flat = AgentSys().description(), AgentSys(isolation=False).description()
    assert isolated.startswith("The main agent reads the user's request and never a raw tool output.")
    assert flat.startswith("One agent works for the user and reads every tool output raw")
    assert AgentSys(gate="schema").description() != isolated


@pytest.mark.parametrize(
    ("options", "sorts"),
    [
        ({}, True),
        ({"validator": False, "sanitizer": False}, False),
        ({"validator": False, "sanitizer": False, "worker_tools": "on_request"}, True),
        ({"validator": False, "sanitizer": False, "worker_tools": "on_request", "max_depth": 1}, False),
        ({"validator": False, "sanitizer": False, "repeats": "kept"}, True),
    ],
)
def test_tools_are_sorted_only_where_it_matters_which_only_read(
    options: dict[str, object], sorts: bool
) -> None:
    assert AgentSys(**options).settings.sorts_tools is sorts  # type: ignore[arg-type]
    assert ("privileges" in AgentSys(**options).prompts()) is sorts  # type: ignore[arg-type]
