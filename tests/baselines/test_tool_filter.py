"""The tool filter: which tools a reply picks, what becomes of the others, what stays in the conversation."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatMessage
from scripted_for_baselines import ScriptedModel, calls, runtime_returning

from agentsys.models.chat import ChatRequest, assistant
from baselines.tool_filter import ToolFilter, pick_tools

FILES = ("search_files", "search_files_by_filename", "read_file", "send_money")


@pytest.mark.parametrize(
    ("reply", "exact", "substring"),
    [
        ("read_file, send_money", ["read_file", "send_money"], ["read_file", "send_money"]),
        ("send_money,read_file", ["read_file", "send_money"], ["read_file", "send_money"]),
        (
            "search_files_by_filename",
            ["search_files_by_filename"],
            ["search_files", "search_files_by_filename"],
        ),
        (
            "functions.read_file, functions.send_money",
            ["read_file", "send_money"],
            ["read_file", "send_money"],
        ),
        ("1. `read_file`\n2) **send_money**.", ["read_file", "send_money"], ["read_file", "send_money"]),
        ("- read_file\n* send_money", ["read_file", "send_money"], ["read_file", "send_money"]),
        ('["read_file"; "send_money"]', ["read_file", "send_money"], ["read_file", "send_money"]),
        ("I need read_file for that", [], ["read_file"]),
        ("read_files", [], ["read_file"]),
        ("READ_FILE", [], []),
        ("", [], []),
    ],
)
def test_a_reply_picks_whole_names_or_names_anywhere(
    reply: str, exact: list[str], substring: list[str]
) -> None:
    assert pick_tools(reply, FILES, "exact") == exact
    assert pick_tools(reply, FILES, "substring") == substring


def run(defense: ToolFilter, model: ScriptedModel, runtime: FunctionsRuntime) -> list[ChatMessage]:
    pipeline = defense.pipeline(model, get_suite("v1.2.2", "banking"))
    return list(pipeline.query("Pay my rent.", runtime)[3])


def offered(request: ChatRequest) -> list[str]:
    return [tool.name for tool in request.tools]


def test_a_tool_that_was_taken_away_cannot_be_run() -> None:
    ran: list[str] = []

    def pay() -> str:
        """Pays."""
        ran.append("pay")
        return "paid"

    runtime = runtime_returning(balance=5)
    runtime.register_function(pay)
    model = ScriptedModel([assistant("balance"), calls("balance", "pay"), assistant("Done.")])
    results = [m for m in run(ToolFilter(), model, runtime) if m["role"] == "tool"]
    assert [result["error"] for result in results] == [None, "Invalid tool pay provided."]
    assert ran == []


def roles(messages: list[ChatMessage]) -> list[str]:
    return [message["role"] for message in messages]


@pytest.mark.parametrize(("on_empty", "left"), [("none", []), ("all", ["balance", "pay"])])
def test_where_nothing_is_picked_no_tool_or_every_tool_is_left(on_empty: Any, left: list[str]) -> None:
    model = ScriptedModel([assistant("None of them."), assistant("Done.")])
    run(ToolFilter(on_empty=on_empty), model, runtime_returning(balance=5, pay="paid"))
    assert offered(model.requests[1]) == left


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    "reply",
    [
        assistant(None),
        assistant(""),
        assistant(None, []),
        assistant(None, [FunctionCall(function="pay", args={}, id="1")]),
        {
            "role": "assistant",
            "content": [{"type": "thinking", "content": "pay, balance", "id": None}],
            "tool_calls": None,
        },
    ],
)
def test_a_reply_without_text_picks_nothing_and_leaves_nothing_behind(reply: Any, keep: bool) -> None:
    model = ScriptedModel([reply, assistant("Done.")])
    messages = run(ToolFilter(keep_exchange=keep), model, runtime_returning(balance=5, pay="paid"))
    assert roles(messages) == ["system", "user", "assistant"]
    assert offered(model.requests[1]) == []


def test_simulated_a_goal_is_stopped_only_where_its_tool_was_taken_away(run_cases: Any) -> None:
    common = ["model=simulated", "attack=important_instructions", "benchmark.suites=[banking]"]
    tasks = ["user_tasks=[0,1]", "injection_tasks=[0,7]"]
    records = run_cases([*common, *tasks, "defense=none,tool_filter"])
    carried_out = {
        (record["agentsys"]["case"]["defense"], record["user_task_id"], record["injection_task_id"]): record[
            "security"
        ]
        for record in records.values()
    }
    # User task 0 pays a bill and so keeps `send_money`; user task 1 only reads. Goal 7 changes the password.
    assert {key[1:] for key, done in carried_out.items() if key[0] == "none" and not done} == set()
    assert {key[1:] for key, done in carried_out.items() if key[0] == "tool_filter" and done} == {
        ("user_task_0", "injection_task_0")
    }
