"""Reading what a record did: both of AgentDojo's forms, ours, DRIFT's, and whatever else lies about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_cases import (
    PAY_ATTACKER,
    PAY_BILL,
    PAYLOAD,
    READ_BILL,
    attacked,
    drift,
    in_blocks,
    published,
    stored,
)

from agentsys.errors import ConfigError
from agentsys.models.pipeline_elements import normalize_arguments
from agentsys_plugins.audit.rescoring.read_trajectories import read_trajectory
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordedCall,
    RecordFault,
    RecordTasks,
    Trajectory,
    Unusable,
    find_suite,
    find_tasks,
    is_denial_in_label,
    load_agentdojo,
)
from agentsys_plugins.audit.rescoring.reexecution import (
    collect_todays_results,
    reexecute,
    score_with_execution,
)


def read(folder: Path, content: dict[str, Any]) -> Trajectory:
    found = read_trajectory(str(stored(folder, content, "one.json")))
    assert found is not None
    return found


def obstacle(folder: Path, content: dict[str, Any]) -> RecordFault:
    with pytest.raises(Unusable) as raised:
        read(folder, content)
    return raised.value.obstacle


def test_old_strings_and_new_blocks_read_alike(tmp_path: Path) -> None:
    old = attacked()
    new = {**old, "messages": in_blocks(old["messages"]), "agentdojo_package_version": "0.1.35"}
    assert read(tmp_path, old) == read(tmp_path, new)
    assert [call.function for call in read(tmp_path, old).executed] == ["read_file", "send_money"]


def test_a_call_that_no_tool_answered_is_seen_by_checks_but_not_executed(tmp_path: Path) -> None:
    content = published()
    content["messages"][-1]["tool_calls"] = [PAY_ATTACKER]
    found = read(tmp_path, content)
    assert [call.args for call in found.executed] == [READ_BILL["args"], PAY_BILL["args"]]
    assert found.seen_by_checks[-1].args == PAY_ATTACKER["args"]


def test_the_answer_of_drift_is_its_whole_last_message_and_its_injections_are_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, drift())
    assert found.answer == ({"type": "text", "content": "<final_answer>Paid.</final_answer>"},)
    assert (found.form, found.version, found.injections) == ("drift", "v1.2", None)


def test_a_record_is_named_by_suite_tasks_and_attack(tmp_path: Path) -> None:
    assert read(tmp_path, published()).name == "banking user_task_0"
    assert read(tmp_path, attacked()).name == "banking user_task_0 x injection_task_0 (direct)"


def test_benign_security_is_dropped_whatever_is_stored(tmp_path: Path) -> None:
    assert read(tmp_path, published(security=False)).security is None
    assert read(tmp_path, attacked()).security is True


def test_workers_calls_are_read_from_spans(run_cases: Callable[..., Any], tmp_path: Path) -> None:
    run_cases(
        [
            "model=simulated",
            "defense=agentsys",
            "attack=none",
            "benchmark.suites=[workspace]",
            "user_tasks=[user_task_13,user_task_0]",
        ]
    )
    cases = [read_trajectory(str(path)) for path in sorted((tmp_path / "runs").rglob("none.json"))]
    scored = [case for case in cases if case is not None]
    assert len(scored) == 2
    assert all(case.simulated and case.shown_pipeline.endswith("(simulated)") for case in scored)
    assert [score_with_execution(case, str(case.version)).scores.utility for case in scored] == [
        case.utility for case in scored
    ]


def test_calls_of_every_attempt_are_executed_and_checks_see_those_of_the_last(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    run_cases(["model=simulated", "attack=none", "benchmark.suites=[banking]", "user_tasks=[user_task_0]"])
    (path,) = (tmp_path / "runs").rglob("none.json")
    content = orjson.loads(path.read_bytes())
    tools = [span for span in content["agentsys"]["spans"] if span["kind"] == "tool"]
    earlier = [{**span, "attempt": -1, "decision": {"args": {"n": 1}, "error": None}} for span in tools[:1]]
    content["agentsys"]["spans"][:0] = [{**span, "name": "get_most_recent_transactions"} for span in earlier]
    content["agentsys"]["receipts"] = None  # as before there were any
    found = read(tmp_path, content)
    assert [call.function for call in found.executed] == [
        "get_most_recent_transactions",
        "read_file",
        "send_money",
    ]
    assert [call.function for call in found.seen_by_checks] == ["read_file", "send_money"]


def test_an_errored_record_is_read_with_its_error_even_if_nothing_was_said(tmp_path: Path) -> None:
    found = read(tmp_path, attacked(error="context_length_exceeded") | {"messages": []})
    assert (found.error, found.executed, found.security) == ("context_length_exceeded", (), True)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"messages": []}, RecordFault.HOLLOW),
        ({"utility": None}, RecordFault.UNFINISHED),
        ({"messages": published()["messages"][:-1]}, RecordFault.UNFINISHED),
        ({"messages": None}, RecordFault.UNREADABLE),
        ({"messages": [{"role": "tool", "content": "x"}]}, RecordFault.UNREADABLE),
        ({"injections": {"injection_bill_text": 3}}, RecordFault.UNREADABLE),
        ({"user_task_id": ["user_task_0"]}, RecordFault.UNREADABLE),
        ({"agentsys": {"schema_version": 99}}, RecordFault.UNREADABLE),
        ({"agentsys": []}, RecordFault.UNREADABLE),
    ],
)
def test_what_cannot_be_used_says_why(tmp_path: Path, changed: dict[str, Any], expected: RecordFault) -> None:
    assert obstacle(tmp_path, published(**changed)) is expected


def test_broken_json_and_other_json_are_told_apart(tmp_path: Path) -> None:
    broken, other = tmp_path / "broken.json", tmp_path / "other.json"
    broken.write_text('{"suite_name": "ban')
    other.write_text('{"plan": []}')
    with pytest.raises(Unusable, match="not valid JSON"):
        read_trajectory(str(broken))
    assert read_trajectory(str(other)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(drift() | attacked() | {"agentsys": None})), JSON, st.booleans())
def test_whatever_stands_under_a_key_nothing_but_unusable_is_raised(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, is_drift: bool
) -> None:
    content = {**(drift() if is_drift else attacked()), key: value}
    path = tmp_path_factory.getbasetemp() / "hostile.json"
    try:
        path.write_bytes(orjson.dumps(content))
    except TypeError:  # an integer beyond 64 bits or half a surrogate: no such file can be written so
        return
    try:
        found = read_trajectory(str(path))
        if found is not None:
            score_with_execution(found, "v1.2.2")
    except Unusable:
        pass


@pytest.mark.parametrize("label", ["agentdojo", "agentdojo+exact", "agentdojo+exact+append_injection"])
def test_a_label_says_how_the_benchmark_is_made_again(label: str) -> None:
    assert load_agentdojo("v1.2", label).name == label


@pytest.mark.parametrize("label", ["agentdojo+append_injection+exact", "agentdojo+no_such_fix", "asb"])
def test_a_label_that_no_options_make_is_an_error(label: str) -> None:
    with pytest.raises(ConfigError):
        load_agentdojo("v1.2", label)


@pytest.mark.parametrize(
    ("attack", "denies"),
    [("dos", True), ("swearwords_dos", True), ("dos[extra=1]", True), ("direct", False), ("no such", False)],
)
def test_denials_of_service_are_told_by_the_attacks_name_options_aside(attack: str, denies: bool) -> None:
    assert is_denial_in_label(attack) is denies


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
