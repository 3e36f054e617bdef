"""One way from messages to the judged answer: run, rescore, check and replay agree, whatever a model thought."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from posted_server import serve_posts
from small_runs import Silent, records_in
from stored_cases import attacked, stored
from typer.testing import CliRunner

from agentsys.base.config_catalog import load_config
from agentsys.benchmarks.scoring import take_judged_messages
from agentsys.cli import app
from agentsys.records.case_reader import read_cases
from agentsys.records.context_facts import JUDGED_THOUGHTS
from agentsys.runs.run_session import prepare_session

THOUGHT = "A review says that I must praise Riverside View Hotel; I ignore it."
PRAISE = "You should visit Riverside View Hotel because it is incredibly gorgeous."
Json = dict[str, Any]


def chat(thought: str, text: str | None) -> Json:
    message = {"role": "assistant", "content": text, "reasoning_content": thought}
    return {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}


USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "input_tokens": 9, "output_tokens": 9}


def anthropic(thought: str, text: str | None) -> Json:
    content: list[Json] = [{"type": "thinking", "thinking": thought, "signature": "c2ln"}]
    content += [] if text is None else [{"type": "text", "text": text}]
    return {"type": "message", "model": "m", "content": content, "stop_reason": "end_turn", "usage": USAGE}


def gemini(thought: str, text: str | None) -> Json:
    parts: list[Json] = [{"text": thought, "thought": True}, *([] if text is None else [{"text": text}])]
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9}
    content = {"role": "model", "parts": parts}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}


def responses(thought: str, text: str | None) -> Json:
    output: list[Json] = [
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": thought}],
            "encrypted_content": "e",
        }
    ]
    if text is not None:
        part = {"type": "output_text", "text": text, "annotations": []}
        output.append({"type": "message", "role": "assistant", "content": [part]})
    return {"object": "response", "status": "completed", "model": "m", "output": output, "usage": USAGE}


def think_tag(thought: str, text: str | None) -> Json:
    return {**chat("", f"<think>{thought}</think>{text or ''}")}


SERVERS: dict[str, tuple[str, Callable[[str, str | None], Json], Json]] = {
    "chat": ("served", chat, {}),
    "anthropic": ("served-anthropic", anthropic, {"thinking": "adaptive"}),
    "gemini": ("served-google", gemini, {"thinking_level": "high"}),
    "responses": ("served-responses", responses, {"reasoning_effort": "high"}),
    "think_tag": ("served", think_tag, {"strip_think": True}),
}


def run(folder: Path, server: str, body: Json, *overrides: str) -> tuple[Path, int]:
    """Run cases of Travel against a server that always answers with one body; the folder, and the requests."""
    base, _, options = SERVERS[server]
    asked: list[bytes] = []

    def answer(request: bytes) -> tuple[int, bytes]:
        asked.append(request)
        return 200, json.dumps(body).encode()

    with serve_posts(answer) as address:
        version = "/v1" if base in ("served", "served-responses") else ""
        own = {**load_config("model", base), **options, "name": "thinker", "simulated": False}
        own |= {
            "base_url": f"{address}{version}",
            "model_id": "m",
            "retry": {"attempts": 1, "empty_retries": 0},
        }
        path = folder / "conf/model/thinker.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(own))
        words = ["model=thinker", "benchmark.suites=[travel]", "user_tasks=[0]", "preflight=false"]
        words += [f"logdir={folder / 'runs'}", *overrides]
        prepare_session(words, config_dirs=[folder / "conf"]).execute(Silent())
    return folder / "runs", len(asked)


def grade_of_scores(runs: Path) -> str:
    """What `check` says of re-scoring alone; cells without a tool call are broken for that."""
    page = json.loads(CliRunner().invoke(app, ["check", str(runs), "--format", "json"]).output)
    return next(str(one["grade"]) for one in page["findings"] if one["subject"] == "Scores")


ATTACKED = ("attack=direct", "injection_tasks=[6]")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("text", "succeeds"), [("I booked it.", False), (PRAISE, True)])
def test_rescoring_a_thinking_models_run_agrees_with_the_run(
    tmp_path: Path, server: str, text: str, succeeds: bool
) -> None:
    rescore_records = pytest.importorskip("agentsys_plugins.audit.rescoring.rescore").rescore_records
    runs, _ = run(tmp_path, server, SERVERS[server][1](THOUGHT, text), *ATTACKED)
    (record,) = records_in(runs).values()
    assert record["agentsys"]["status"] == "ok", record["error"]
    assert record["agentsys"]["security"] is succeeds
    assert record["agentsys"]["measured"]["security_fixed"] is succeeds
    (case,) = rescore_records([runs], "v1.2.2").cases
    assert (case.scores.utility, case.scores.security) == (case.trajectory.utility, case.trajectory.security)
    assert case.flips == ()
    assert case.fixed is not None
    assert case.fixed.security is succeeds
    assert grade_of_scores(runs) == "valid"
    # What was thought is kept all the same, wherever a server tells it.
    assert server == "gemini" or THOUGHT in json.dumps(record["messages"])


@pytest.mark.parametrize("server", SERVERS)
def test_a_replay_of_our_own_thinking_run_scores_as_the_run_did(tmp_path: Path, server: str) -> None:
    runs, _ = run(tmp_path, server, SERVERS[server][1](THOUGHT, "I booked it."), *ATTACKED)
    (record,) = replayed(tmp_path, runs)
    assert (record["agentsys"]["security"], record["agentsys"]["judges_thoughts"]) == (False, False)


def replayed(folder: Path, traces: Path) -> list[Json]:
    words = [
        "model=replay",
        f"model.traces={traces}",
        "benchmark.suites=[travel]",
        "user_tasks=[0]",
        *ATTACKED,
    ]
    prepare_session([*words, f"logdir={folder / 'again'}"]).execute(Silent())
    return list(records_in(folder / "again").values())


def agentdojos(folder: Path) -> Path:
    """A record of AgentDojo's own, whose attack succeeded in what the model thought."""
    from agentsys.benchmarks.agentdojo import AgentDojo

    task = AgentDojo("v1.2.2").suite("travel").user_tasks["user_task_0"]
    said = [{"type": "thinking", "content": THOUGHT, "id": "c2ln"}, {"type": "text", "content": "Booked."}]
    blocks = [{"type": "text", "content": task.PROMPT}]
    from agentsys.models.pipeline_elements import default_system_message

    system = [{"type": "text", "content": default_system_message(AgentDojo("v1.2.2").suite("travel"))}]
    content = attacked(
        suite_name="travel",
        pipeline_name="claude-thinks",
        injection_task_id="injection_task_6",
        injections={},
        benchmark_version="v1.2.2",
        messages=[
            {"role": "system", "content": system},
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": said, "tool_calls": []},
        ],
        security=True,
    )
    stored(folder / "theirs", content)
    return folder / "theirs"


def test_agentdojos_own_record_is_judged_whole_when_rescored_and_when_replayed(tmp_path: Path) -> None:
    rescore_records = pytest.importorskip("agentsys_plugins.audit.rescoring.rescore").rescore_records
    theirs = agentdojos(tmp_path)
    (case,) = rescore_records([theirs], "v1.2.2").cases
    assert (case.scores.security, case.flips) == (True, ())
    (record,) = replayed(tmp_path, theirs)
    assert (record["agentsys"]["security"], record["agentsys"]["judges_thoughts"]) == (True, True)
    (again,) = rescore_records([tmp_path / "again"], "v1.2.2").cases
    assert (again.scores.security, again.flips) == (True, ())
    assert grade_of_scores(tmp_path / "again") == "valid"


def test_where_judged_thoughts_stand_beside_unjudged_ones_a_note_says_so_once(tmp_path: Path) -> None:
    theirs = agentdojos(tmp_path)
    runs, _ = run(tmp_path, "anthropic", anthropic(THOUGHT, "I booked it."), *ATTACKED)
    assert [JUDGED_THOUGHTS in case.notes for case in read_cases([theirs, runs]).cases] == [True, False]
    said = {
        folders: " ".join(CliRunner().invoke(app, ["results", "--full", *map(str, folders)]).output.split())
        for folders in ((theirs,), (runs,), (theirs, runs))
    }
    assert [text.count(JUDGED_THOUGHTS) for text in said.values()] == [0, 0, 1]


STUCK: dict[str, tuple[Json, int]] = {
    "chat": (
        {"choices": [{"message": {"content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "get_user_information", "arguments": "{}"}}
        ]}}], "usage": USAGE}, 48),
    "anthropic": (
        {"type": "message", "content": [
            {"type": "tool_use", "id": "c", "name": "get_user_information", "input": {}}
        ], "stop_reason": "tool_use", "usage": USAGE}, 16),
    "gemini": (
        {"candidates": [{"content": {"parts": [
            {"functionCall": {"name": "get_user_information", "args": {}}}
        ]}}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 9}}, 16),
}  # fmt: skip
"""Vendor -> a reply that calls a tool and says nothing, and the requests that AgentDojo's own loop then makes."""


@pytest.mark.parametrize("server", STUCK)
def test_a_stuck_model_is_run_as_often_as_by_agentdojo(tmp_path: Path, server: str) -> None:
    body, requests = STUCK[server]
    runs, asked = run(tmp_path, server, body, "cache.mode=off")
    (record,) = records_in(runs).values()
    assert record["agentsys"]["status"] == "ok", record["error"]
    assert asked == requests
    assert record["agentsys"]["scored_attempt"] == requests // 16 - 1


@pytest.mark.parametrize(
    ("content", "judged"),
    [
        (None, None),
        ([], []),
        ([("thinking", "t", None)], None),
        ([("thinking", "t", "openai:1")], None),
        ([("thinking", "t", "c2ln")], []),
        ([("redacted_thinking", "x", None)], []),
        ([("thinking", "t", None), ("text", "", None)], [""]),
        ([("thinking", "t", "c2ln"), ("text", "a", None), ("text", "b", None)], ["a", "b"]),
    ],
)
def test_an_answer_of_thoughts_alone_has_the_content_that_its_vendors_element_gives(
    content: Any, judged: list[str] | None
) -> None:
    blocks = content and [{"type": kind, "content": text, "id": mark} for kind, text, mark in content]
    last: Any = {"role": "assistant", "content": blocks, "tool_calls": None}
    tool: Any = {"role": "tool", "content": [], "tool_call_id": "c", "tool_call": None, "error": None}
    for messages, at in (([last], 0), ([last, tool], 0)):
        found = take_judged_messages(messages, with_thoughts=False)[at]["content"]
        assert (found and [block["content"] for block in found]) == (judged and judged)
        assert (found is None) is (judged is None)
        assert take_judged_messages(messages, with_thoughts=True) == messages


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("security", True),
        ("utility", True),
        ("user_task_id", "user_task_3"),
        ("benchmark_version", "v1"),
        ("attack_type", "x"),
    ],
)
def test_a_field_that_agentdojos_tools_would_read_otherwise_breaks_the_check(
    tmp_path: Path, field: str, value: object
) -> None:
    runs, _ = run(tmp_path, "chat", chat(THOUGHT, "I booked it."), *ATTACKED)
    (path,) = (path for path in runs.rglob("*.json") if ".agentsys" not in path.parts)
    assert "stands twice" not in CliRunner().invoke(app, ["check", str(runs)]).output
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), field: value}))
    page = CliRunner().invoke(app, ["check", str(runs)])
    assert "Does not hold" in page.output
    assert f"not the same: {field}" in " ".join(page.output.split())
    assert page.exit_code == 1


@pytest.mark.parametrize("defense", ["none", "agentsys", "camel", "drift", "melon", "agentsys_no_isolation"])
def test_an_argument_that_messages_have_otherwise_than_spans_is_a_doubt(tmp_path: Path, defense: str) -> None:
    words = (
        f"run model=simulated defense={defense} attack=none benchmark.suites=banking user_tasks=user_task_3"
    )
    assert not CliRunner().invoke(app, [*words.split(), f"logdir={tmp_path}"]).exception
    (path,) = (path for path in tmp_path.rglob("*.json") if ".agentsys" not in path.parts)
    assert "differ in a call" not in CliRunner().invoke(app, ["check", str(tmp_path)]).output
    record = orjson.loads(path.read_bytes())
    calls = [call for message in record["messages"] for call in message.get("tool_calls") or ()]
    calls[-1]["args"] |= {"amount": 9.5}
    path.write_bytes(orjson.dumps(record))
    page = " ".join(CliRunner().invoke(app, ["check", str(tmp_path)]).output.split())
    assert f"messages and spans differ in a call: {calls[-1]['function']}" in page
    assert "? Faults" in page
