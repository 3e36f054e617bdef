"""Recorded calls, executed again as AgentDojo's executor would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from stored_examples import PAY_BILL, PAYLOAD, READ_BILL, attacked, stored

from agentsys.audit.rescoring.read_trajectories import read_trajectory
from agentsys.audit.rescoring.recorded_trajectory import (
    RecordedCall,
    RecordTasks,
    Trajectory,
    find_suite,
    find_tasks,
)
from agentsys.audit.rescoring.reexecution import collect_todays_results, reexecute
from agentsys.models.pipeline_elements import normalize_arguments


@pytest.fixture
def trajectory(tmp_path: Path) -> Trajectory:
    found = read_trajectory(str(stored(tmp_path, attacked())))
    assert found is not None
    return found


def prepared(trajectory: Trajectory) -> tuple[RecordTasks, Any]:
    suite = find_suite(trajectory, "v1.2.2")
    return find_tasks(trajectory, suite, "v1.2.2"), suite


@pytest.mark.parametrize(
    ("given", "executed"),
    [
        ("['a', 'b']", ["a", "b"]),
        (" ([1])", [1]),
        ("[]", []),
        ("('a', 'b')", "('a', 'b')"),
        ("[a, b]", "[a, b]"),
        ("[" * 5000, "[" * 5000),
        ("[__import__('os')]", "[__import__('os')]"),
        (3, 3),
        (["['a']"], ["['a']"]),
    ],
)
def test_a_text_that_reads_as_a_list_becomes_one_and_nothing_else_does(given: Any, executed: Any) -> None:
    assert normalize_arguments({"x": given}) == {"x": executed}


def test_arguments_become_what_the_packages_executor_makes_of_them(trajectory: Trajectory) -> None:
    _, suite = prepared(trajectory)
    for value in ("['a']", " [1, 2]", "(1,)", "[x]", "plain"):
        call = FunctionCall(function="read_file", args={"file_path": value})
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        env = suite.load_and_inject_default_environment({})
        ToolsExecutor().query("", FunctionsRuntime(suite.tools), env, [message])
        assert dict(call.args) == normalize_arguments({"file_path": value})


def test_calls_change_the_environment_after_and_not_before(trajectory: Trajectory) -> None:
    done = reexecute(trajectory, *prepared(trajectory))
    paid = [t.recipient for t in done.after.bank_account.transactions]
    assert paid[:-1] == [t.recipient for t in done.before.bank_account.transactions]
    assert paid[-1] == "US133000000121212121212"
    assert PAYLOAD in done.after.filesystem.files["bill-december-2023.txt"]


def test_tools_are_retold_as_the_agent_is_shown_them_errors_and_unknown_tools_included(
    trajectory: Trajectory,
) -> None:
    calls = (
        RecordedCall(READ_BILL["function"], READ_BILL["args"]),
        RecordedCall("no_such_tool", {}),
        RecordedCall("send_money", {**PAY_BILL["args"], "amount": "much"}),
        RecordedCall("send_money", {"recipient": {"function": "read_file", "args": None}}),
    )
    texts = collect_todays_results(replace(trajectory, executed=calls), *prepared(trajectory))
    assert PAYLOAD in texts[0]
    assert texts[1] == "Invalid tool no_such_tool provided."
    assert all(text.startswith("ValidationError") for text in texts[2:])
