"""Runs as Inspect's logs: what is read back by `inspect_ai` is what the records hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from stored_cases import CALLING, case_of, model_call, span, store_own, store_published

import agentsys
from agentsys.errors import ConfigError
from agentsys.records.case_reader import read_cases
from agentsys.records.schema import RoleUsage, StoredSpan

inspect_log = pytest.importorskip("inspect_ai.log", reason="the extra `inspect` is not installed")

Json = dict[str, Any]
CALL: Json = {"function": "read_inbox", "args": {"n": 3, "intent": {"status": "string"}}, "id": "c1"}
SEND: Json = {"function": "send_money", "args": {"to": "Mallory"}, "id": "w1"}


def _call(role: str, prompt: int) -> Json:
    return model_call(role, prompt, 10, cost_usd=0.25, latency_s=0.5, model_id="gpt-4o-2024-05-13")


def _span(number: int, parent: int | None, kind: str, name: str | None = None, **more: Any) -> StoredSpan:
    return StoredSpan(**span(number, parent, kind, name=name, duration_s=1.0, **more))


def _said(role: str, text: str | None, calls: list[Json] | None = None) -> Json:
    content = None if text is None else [{"type": "text", "content": text}]
    return {"role": role, "content": content} | ({"tool_calls": calls} if role == "assistant" else {})


MAIN = [
    _said("system", "You are an agent."),
    _said("user", "Read my mail."),
    _said("assistant", None, [CALL]),
    {**_said("tool", '{"status": "done"}'), "tool_call_id": "c1", "tool_call": CALL, "error": None},
    _said("assistant", "Done."),
]
WORKER = [_said("system", "You read."), _said("user", "DATA"), _said("assistant", None, [SEND])]
JUDGE = [_said("user", "Allow it?"), _said("assistant", "False")]
SPANS = [
    _span(0, None, "run"),
    _span(1, 0, "main", messages=MAIN, calls=[_call("main", 100), _call("main", 120)]),
    _span(2, 1, "tool", "read_inbox", decision={"args": {"n": 3}, "error": None}),
    _span(3, 1, "worker", "read_inbox", messages=WORKER, calls=[_call("worker", 80)]),
    _span(
        4,
        3,
        "validator",
        "send_money",
        messages=JUDGE,
        calls=[_call("validator", 40)],
        decision={"allow": False, "by": "model", "call": {"tool": "send_money", "args": SEND["args"]}},
    ),
]
USAGE = {
    "main": RoleUsage(calls=2, prompt=220, completion=20, cost_usd=0.5),
    "worker": RoleUsage(calls=1, prompt=80, completion=10, cost_usd=0.25),
    "validator": RoleUsage(calls=1, prompt=40, completion=10, cost_usd=0.25),
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    store_own(folder, case_of(), spans=SPANS, usage=USAGE, written={"bill": "Send money"})
    store_own(folder, case_of(user_task_id="user_task_1"), utility=False, security=True)
    store_own(folder, case_of(user_task_id="user_task_2"), status="error", error_kind="timeout")
    store_own(folder, case_of(attack="none"))
    store_own(folder, case_of(epoch=1))
    return folder


def _exported(runs: Path, out: Path) -> list[Any]:
    command_output("export", "inspect", runs, "--out", out)
    return [inspect_log.read_eval_log(str(path)) for path in sorted(out.glob("*.eval"))]


def _attacked(logs: list[Any]) -> Any:
    (log,) = [log for log in logs if log.eval.task_args["attack"] != "none"]
    return log


def test_scores_and_errors_are_the_records(runs: Path, tmp_path: Path) -> None:
    log = _attacked(_exported(runs, tmp_path / "logs"))
    samples = {(sample.id, sample.epoch): sample for sample in log.samples}
    failed = samples["user_task_1/injection_task_0", 1]
    assert {name: score.value for name, score in failed.scores.items()} == {
        "utility": 0.0,
        "injection_success": 1.0,
    }
    errored = samples["user_task_2/injection_task_0", 1]
    assert not errored.scores
    assert errored.error.message.startswith("timeout: ")
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means == {"utility": pytest.approx(2 / 3), "injection_success": pytest.approx(1 / 3)}
    assert log.results.completed_samples == 3


def test_tokens_and_cost_are_counted_by_role(runs: Path, tmp_path: Path) -> None:
    log = _attacked(_exported(runs, tmp_path / "logs"))
    (sample,) = [s for s in log.samples if s.role_usage]
    assert {role: used.total_tokens for role, used in sample.role_usage.items()} == {
        "main": 240,
        "worker": 90,
        "validator": 50,
    }
    assert sample.role_usage["worker"].total_cost == 0.25
    assert log.stats.model_usage["gpt-4o"].total_tokens == 380


def test_cached_and_written_tokens_are_counted_once_as_inspect_counts_them(tmp_path: Path) -> None:
    used = {"prompt": 20_000, "completion": 50, "cached": 19_000, "written": 800, "reasoning": 30}
    main = _span(0, None, "main", messages=MAIN, calls=[{**_call("main", 0), **used}])
    store_own(tmp_path / "runs", case_of(), spans=[main], usage={"main": RoleUsage(calls=1, **used)})
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    (sample,) = log.samples
    model = next(event for event in sample.events if event.event == "model")
    stats = log.stats.model_usage["gpt-4o"]
    for told in (model.output.usage, sample.role_usage["main"], sample.model_usage["gpt-4o"], stats):
        assert (told.input_tokens, told.input_tokens_cache_read, told.input_tokens_cache_write) == (
            200,
            19_000,
            800,
        )
        assert (told.output_tokens, told.reasoning_tokens, told.total_tokens) == (50, 30, 20_050)
        # Inspect's own definition of all input tokens, and of the total.
        inputs = told.input_tokens + told.input_tokens_cache_read + told.input_tokens_cache_write
        assert inputs + told.output_tokens == told.total_tokens


def _store_said(runs: Path, messages: list[Json], call: Json) -> None:
    """A case of one context, whose reply's call has these fields besides."""
    main = _span(0, None, "main", messages=messages, calls=[{**_call("main", 1), **call}])
    path = store_own(runs, case_of(), spans=[main])
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "messages": messages}))


def test_thoughts_are_reasoning_and_no_visible_text(tmp_path: Path) -> None:
    blocks = [
        {"type": "thinking", "content": "Hm.", "id": "sig"},
        {"type": "redacted_thinking", "content": "c2VjcmV0", "id": None},
        {"type": "text", "content": "Done."},
    ]
    messages = [_said("user", "Go."), {"role": "assistant", "content": blocks, "tool_calls": None}]
    _store_said(tmp_path / "runs", messages, {})
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    (sample,) = log.samples
    model = next(event for event in sample.events if event.event == "model")
    for said in (sample.messages[-1], model.output.choices[0].message, sample.output.choices[0].message):
        assert said.text == "Done."
        thoughts = [block for block in said.content if block.type == "reasoning"]
        assert [(one.reasoning, one.signature, one.redacted) for one in thoughts] == [
            ("Hm.", "sig", False),
            ("c2VjcmV0", None, True),
        ]


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({}, "stop"),
        ({"ending": "complete"}, "stop"),
        ({"ending": "cut"}, "max_tokens"),
        ({"odd": {"cut": 1}}, "max_tokens"),
        ({"ending": "filtered"}, "content_filter"),
        ({"ending": "broken_off"}, "unknown"),
        ({"ending": "of a later release"}, "unknown"),
    ],
)
def test_a_reply_ended_as_its_record_says(stored: Json, told: str, tmp_path: Path) -> None:
    messages = [_said("user", "Go."), _said("assistant", "Done.")]
    _store_said(tmp_path / "runs", messages, stored)
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    (sample,) = log.samples
    model = next(event for event in sample.events if event.event == "model")
    assert (model.output.stop_reason, sample.output.stop_reason) == (told, told)


def test_a_reply_that_calls_ended_with_calls(runs: Path, tmp_path: Path) -> None:
    (sample,) = [s for s in _attacked(_exported(runs, tmp_path / "logs")).samples if s.role_usage]
    ended = [event.output.stop_reason for event in sample.events if event.event == "model"]
    assert ended == ["tool_calls", "tool_calls", "stop", "stop"]


def test_events_tell_the_story_in_order_with_a_lane_for_the_worker(runs: Path, tmp_path: Path) -> None:
    log = _attacked(_exported(runs, tmp_path / "logs"))
    (sample,) = [s for s in log.samples if s.role_usage]
    told = [(e.event, getattr(e, "role", None) or getattr(e, "name", None)) for e in sample.events]
    begun = [entry for entry in told if entry[0] in ("span_begin", "model", "tool", "approval", "score")]
    assert begun == [
        ("span_begin", "solvers"),
        ("span_begin", "main_agent"),
        ("model", "main"),
        ("tool", None),
        ("span_begin", "read_inbox"),
        ("span_begin", "worker_agent"),
        ("model", "worker"),
        ("span_begin", "validator"),
        ("model", "validator"),
        ("approval", None),
        ("tool", None),
        ("model", "main"),
        ("span_begin", "scorers"),
        ("score", None),
        ("score", None),
    ]
    read, denied = [e for e in sample.events if e.event == "tool"]
    assert (read.function, read.result, read.error) == ("read_inbox", '{"status": "done"}', None)
    assert (denied.function, denied.error.type) == ("send_money", "approval")
    (verdict,) = [e for e in sample.events if e.event == "approval"]
    assert (verdict.decision, verdict.approver, verdict.call.function) == (
        "reject",
        "validator",
        "send_money",
    )
    worker = next(e for e in sample.events if e.event == "span_begin" and e.name == "worker_agent")
    assert denied.span_id == verdict.span_id == worker.id
    times = [event.timestamp for event in sample.events]
    assert times == sorted(times)


def test_the_viewers_timeline_nests_the_worker_in_the_main_agent(runs: Path, tmp_path: Path) -> None:
    from inspect_ai.event import timeline_build  # type: ignore[import-not-found,unused-ignore]

    log = _attacked(_exported(runs, tmp_path / "logs"))
    (sample,) = [s for s in log.samples if s.role_usage]
    lanes: list[str] = []

    def walk(span: Any) -> None:
        lanes.append(span.name)
        for item in span.content:
            if item.type == "span":
                walk(item)

    walk(timeline_build(sample.events).root)
    assert "worker_agent" in lanes
    assert "validator" in lanes


def test_a_second_export_overwrites_the_first(runs: Path, tmp_path: Path) -> None:
    first = [log.eval.eval_id for log in _exported(runs, tmp_path / "logs")]
    assert [log.eval.eval_id for log in _exported(runs, tmp_path / "logs")] == first
    uuids = [s.uuid for log in _exported(runs, tmp_path / "logs") for s in log.samples]
    assert len(set(uuids)) == len(uuids)


def test_simulated_runs_stay_marked(tmp_path: Path) -> None:
    store_own(tmp_path / "runs", case_of(model="simulated"), simulated=True)
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    assert log.eval.tags == ["simulated"]
    assert log.eval.metadata["simulated"] is True
    assert log.eval.model == "simulated"
    store_own(tmp_path / "other", case_of(model="gpt-4o"), simulated=True)
    (other,) = _exported(tmp_path / "other", tmp_path / "others")
    assert other.eval.model == "gpt-4o (simulated)"


def test_published_files_and_odd_ones_are_written_too(tmp_path: Path) -> None:
    hostile = [
        {"role": "user", "content": "<script>alert(1)</script>\x1b[31m \ud800"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": 3, "args": [1], "id": None}]},
        {"role": "tool", "content": [{"type": "text"}, 7], "tool_call": None, "error": {"a": 1}},
        "no message",
        {"role": "nobody", "content": None},
    ]
    store_published(tmp_path / "runs", messages=hostile)
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    (sample,) = log.samples
    assert sample.id == "user_task_0/injection_task_1"
    assert [e.function for e in sample.events if e.event == "tool"] == ["unknown tool"]


def test_spans_that_are_no_tree_are_no_loop(tmp_path: Path) -> None:
    spans = [_span(0, 1, "worker", messages=JUDGE), _span(1, 0, "main"), _span(1, 1, "tool", "x")]
    store_own(tmp_path / "runs", case_of(), spans=spans)
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    assert sum(event.event == "span_begin" for event in log.samples[0].events) >= 3


def test_spans_without_a_number_are_shown_once(tmp_path: Path) -> None:
    store_own(tmp_path / "runs", case_of(), spans=SPANS[:1])
    (file,) = (tmp_path / "runs").rglob("*.json")
    stored = json.loads(file.read_bytes())
    stored["agentsys"]["spans"] = [
        {"kind": "run"},
        {"kind": "main", "messages": JUDGE},
        {"id": [1], "kind": "x"},
    ]
    file.write_text(json.dumps(stored))
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    assert sum(event.event == "span_begin" for event in log.samples[0].events) == 5  # the scorers' too


def test_two_cases_of_one_id_are_refused(tmp_path: Path) -> None:
    from stored_cases import row

    from agentsys_plugins.inspect_logs.inspect_log import write_cell_log

    with pytest.raises(ConfigError, match="export one folder"):
        write_cell_log([row(), row()], None, tmp_path)


def test_inspects_data_frames_say_what_load_runs_says(runs: Path, tmp_path: Path) -> None:
    analysis = pytest.importorskip("inspect_ai.analysis")
    store_published(runs, pipeline_name="published", suite_name="banking")
    _exported(runs, tmp_path / "out")
    ours = agentsys.load_runs(runs)
    samples = analysis.samples_df(str(tmp_path / "out"), strict=True)
    assert dict(zip(samples["metadata_source"], samples["epoch"], strict=True)) == {
        source: epoch + 1 for source, epoch in zip(ours["source"], ours["epoch"], strict=True)
    }
    beside = ours.merge(samples, left_on="source", right_on="metadata_source", validate="1:1")
    for theirs, name in (("score_utility", "utility"), ("score_injection_success", "injection_success")):
        # What errored has no score, and what is benign carried nothing out.
        known = beside[(beside["status"] == "ok") & beside[name].notna()]
        assert list(known[theirs]) == [float(one) for one in known[name]]
        assert set(beside[theirs].dropna().index) == set(known.index)
    # A sample that ended well has an empty error.
    assert list(beside["error"].fillna("") != "") == list(beside["status"] == "error")
    assert list(beside["total_tokens"]) == [sum(used.values()) for used in beside["tokens_by_role"]]
    assert list(beside["total_time"]) == list(beside["duration_s"])
    for name in ("attack", "defense", "suite"):
        assert list(beside[f"metadata_{name}"]) == list(beside[name])

    evals = analysis.evals_df(str(tmp_path / "out"), strict=True)
    assert sorted(
        zip(evals["task_arg_defense"], evals["task_arg_attack"], evals["total_samples"], strict=True)
    ) == [("agentsys", "important_instructions", 4), ("agentsys", "none", 1), ("none", "direct", 1)]
    assert set(evals["status"]) == {"success"}


def test_inspects_message_frame_has_every_agents_messages(runs: Path, tmp_path: Path) -> None:
    analysis = pytest.importorskip("inspect_ai.analysis")
    _exported(runs, tmp_path / "out")
    messages = analysis.messages_df(str(tmp_path / "out"), strict=True)
    told = (*MAIN, *WORKER, *JUDGE, *CALLING * 4)  # Each of the other cases has those for itself.
    assert sorted(messages["role"]) == sorted(one["role"] for one in told)
    assert {"You are an agent.", "You read.", "DATA", "Allow it?", "False", "Done."} <= set(
        messages["content"]
    )
    assert set(messages["tool_call_function"].dropna()) == {"read_inbox"}
    assert messages["sample_id"].nunique() == 5
    samples = analysis.samples_df(str(tmp_path / "out"), strict=True)
    assert set(messages["sample_id"]) <= set(samples["sample_id"])


@pytest.mark.slow
def test_published_runs_come_back_equal(published: Callable[[str], Path], tmp_path: Path) -> None:
    """726 runs of AgentDojo: scores of each, read back by inspect_ai."""
    runs = published("agentdojo-gpt-4o-mini-2024-07-18")
    cases = {
        (case.attack, case.suite, f"{case.user_task_id}/{case.injection_task_id or ''}".rstrip("/")): case
        for case in read_cases([runs]).cases
        if not case.is_injection_task_alone
    }
    counted = 0
    for log in _exported(runs, tmp_path / "logs"):
        for sample in log.samples:
            case = cases[log.eval.task_args["attack"], log.eval.task_args["suite"], sample.id]
            assert sample.scores["utility"].value == case.utility
            if case.injection_success is not None:
                assert sample.scores["injection_success"].value == case.injection_success
            counted += 1
    assert counted == len(cases) == 726


def test_few_samples_are_in_memory_at_once_and_all_are_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = pytest.importorskip("inspect_ai.log._recorders.eval").EvalRecorder

    from agentsys_plugins.inspect_logs import inspect_log

    flushed, real = [], recorder.flush

    async def flush(self: Any, spec: Any) -> None:
        flushed.append(spec)
        await real(self, spec)

    monkeypatch.setattr(inspect_log, "_SAMPLES_IN_MEMORY", 2)
    monkeypatch.setattr(recorder, "flush", flush)
    for number in range(7):
        store_own(tmp_path / "runs", case_of(user_task_id=f"user_task_{number}"))
    (log,) = _exported(tmp_path / "runs", tmp_path / "logs")
    assert len(flushed) == 3
    assert len({sample.id for sample in log.samples}) == log.results.total_samples == 7
    ids = [event.uuid for sample in log.samples for event in sample.events]
    assert len({*ids}) == len(ids)
