"""Reading what a record did: both of AgentDojo's forms, ours, DRIFT's, and whatever else lies about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_examples import PAY_ATTACKER, PAY_BILL, READ_BILL, attacked, drift, in_blocks, published, stored

from agentsys.audit.rescoring.read_trajectories import read_trajectory
from agentsys.audit.rescoring.recorded_trajectory import RecordFault, Trajectory, Unusable
from agentsys.audit.rescoring.reexecution import score_with_execution


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
        ],
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
