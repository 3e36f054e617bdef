"""Real runs against a server: through text or calls, from kept replies, over Responses, through faults."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentdojo.types import text_content_block_from_string
from command_output import command_output
from served_faults import FaultKind, Faults, serve
from served_faults import TestServer as Server
from small_runs import Silent, records_in

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.serve.agent_server import build_served_model

CASES = ["benchmark.suites=[banking]", "user_tasks=[0,1,3]", "injection_tasks=[0,4]"]


@pytest.fixture(scope="module")
def server() -> Any:
    with serve(build_served_model()) as running:
        yield running


def ran(server: Server, folder: Path, *options: str) -> dict[str, Any]:
    defense = [] if any(option.startswith("defense=") for option in options) else ["defense=none"]
    chosen = ["model=served", f"model.base_url={server.openai_base_url}", *defense, *CASES, *options]
    session = prepare_session([*chosen, "attack=none,important_instructions", f"logdir={folder}"])
    session.execute(Silent())
    return {key.split("/", 1)[1]: record for key, record in records_in(folder).items()}


def facts(record: Any) -> Any:
    """Scores, and the calls; not those of attacked cases, where a native reply may make two at once."""
    calls = [call for m in record["messages"] for call in (m.get("tool_calls") or ())]
    listed = [(call["function"], call["args"]) for call in calls]
    return record["utility"], record["security"], listed if record["injection_task_id"] is None else None


@pytest.mark.parametrize("role", ["tool", "input"])
def test_cases_through_text_are_those_of_native_calls(server: Server, role: str, tmp_path: Path) -> None:
    native = ran(server, tmp_path / "native")
    text = ran(server, tmp_path / "text", "+model.tools=text", f"+model.tool_role={role}")
    assert native.keys() == text.keys()
    assert {key: facts(record) for key, record in text.items()} == {
        key: facts(record) for key, record in native.items()
    }
    assert any(record["security"] and record["injection_task_id"] for record in text.values())


def test_a_guard_that_is_another_model_stands_beside_an_agent_through_text(
    server: Server, tmp_path: Path
) -> None:
    options = ["+model.tools=text", "+model.roles.promptarmor_guard=simulated", "defense=promptarmor"]
    records = ran(server, tmp_path, *options)
    blocks = [record["agentsys"] for record in records.values()]
    assert {block["status"] for block in blocks} == {"ok"}
    assert not any(record["security"] for record in records.values() if record["injection_task_id"])
    asked = {
        (call["role"], call["model_id"]) for b in blocks for span in b["spans"] for call in span["calls"]
    }
    assert asked == {("agent", "simulated"), ("promptarmor_guard", "simulated")}


def test_what_is_too_long_is_an_outcome_of_its_own_and_counted_by_suite(tmp_path: Path) -> None:
    too_long = Faults(rate=1.0, kinds=("context_length",))
    with serve(build_served_model(), faults=too_long) as server:
        records = ran(server, tmp_path, "+model.tools=text")
    blocks = [record["agentsys"] for record in records.values()]
    assert {(block["status"], block["error_kind"]) for block in blocks} == {("error", "context_length")}
    assert not any(block["utility"] or block["security"] for block in blocks)
    told = " ".join(command_output("results", tmp_path, "--full").split())
    assert f"Errored cases are left out of the rates: {len(blocks)} (context_length {len(blocks)})." in told
    assert "Longer than the model's context (context_length): banking 9 of 9 cases." in told


ATTACKS = "attack=none,important_instructions"


class Drawing:
    """The simulated model, which says something else each time it is asked."""

    def __init__(self, model: Any) -> None:
        self.model, self.draws, self.lock = model, itertools.count(1), threading.Lock()
        self.name = model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        reply: ChatReply = self.model.complete(request)
        with self.lock:
            drawn = text_content_block_from_string(f"Draw {next(self.draws)}.")
        message = {**reply.message, "content": [*(reply.message["content"] or ()), drawn]}
        return replace(reply, message=message)  # type: ignore[arg-type]


@contextmanager
def drawing() -> Iterator[Server]:
    with serve(Drawing(build_served_model())) as drawing_server:
        yield drawing_server


@pytest.fixture(scope="module")
def drawing_server() -> Iterator[Server]:
    with drawing() as running:
        yield running


def ran_with_cache(drawing_server: Server, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Requests that were sent, and records."""
    before = drawing_server.requests
    chosen = [
        "model=served",
        f"model.base_url={drawing_server.openai_base_url}",
        "model.cache=true",
        "defense=none",
    ]
    session = prepare_session([*chosen, *CASES, ATTACKS, "preflight=false", f"logdir={folder}", *options])
    assert session.execute(Silent()).errors == 0
    return drawing_server.requests - before, records_in(folder)


def said(records: dict[str, Any]) -> dict[str, Any]:
    return {path: (r["utility"], r["security"], r["messages"]) for path, r in records.items()}


@pytest.mark.parametrize("temperature", ["0.0", "null"])
def test_the_same_cases_again_get_their_own_replies_and_ask_nobody(
    drawing_server: Server, temperature: str, tmp_path: Path
) -> None:
    kept = [f"cache.dir={tmp_path / 'kept'}", f"model.temperature={temperature}"]
    paid, first = ran_with_cache(drawing_server, tmp_path / "a", *kept, "executor.workers=32")
    again, second = ran_with_cache(
        drawing_server, tmp_path / "b", *kept, "executor.workers=1", "cache.mode=read_only"
    )
    assert paid > 0 == again
    assert said(first) == said(second)
    openings = {str(r["messages"][2]) for p, r in first.items() if "/user_task_0/" in p}
    assert (len(openings) == 1) is (temperature == "0.0")


def test_a_cache_that_is_off_is_neither_read_nor_written(drawing_server: Server, tmp_path: Path) -> None:
    paid, _ = ran_with_cache(drawing_server, tmp_path / "a", "cache.mode=off")
    again, _ = ran_with_cache(
        drawing_server, tmp_path / "b", "cache.mode=off", f"cache.dir={tmp_path / 'kept'}"
    )
    assert paid == again > 0
    assert not (tmp_path / "a/.agentsys/cache").exists() and not (tmp_path / "kept").exists()


def test_nothing_kept_under_read_only_is_an_error_that_names_the_mend(tmp_path: Path) -> None:
    chosen = ["model=gpt-4o-mini", "defense=none", "benchmark.suites=[banking]", "limit_per_suite=1"]
    session = prepare_session([*chosen, f"logdir={tmp_path}", "cache.mode=read_only"]).preflight()
    assert session.execute(Silent()).errors == 1
    (record,) = records_in(tmp_path).values()
    assert record["agentsys"]["error_kind"] == "cache_miss"
    assert "cache.mode=read_only asks no model" in record["error"]


DEFENSES = ("none", "agentsys", "drift", "tool_filter", "promptarmor", "attriguard", "melon")
"""The rewriters: fresh contexts, rebuilt turns, calls taken away, and calls made up."""
TWO_PAIRS = [
    "benchmark.suites=[banking]",
    "user_tasks=[0,3]",
    "injection_tasks=[0]",
    "attack=important_instructions",
]


def ran_behind(server: Server, folder: Path, model: str, defense: str) -> dict[str, Any]:
    options = [f"model={model}", f"model.base_url={server.openai_base_url}", f"defense={defense}"]
    options += ["defense.embedder=char_ngrams"] if defense == "melon" else []
    session = prepare_session([*options, *TWO_PAIRS, f"logdir={folder}", "executor.workers=2"])
    session.execute(Silent())
    return {key.split("/", 1)[1]: record for key, record in records_in(folder).items()}


def ending(record: Any) -> Any:
    block = record["agentsys"]
    return record["utility"], record["security"], block["error_kind"], record["error"]


@pytest.mark.slow
@pytest.mark.parametrize("defense", DEFENSES)
def test_cases_over_responses_end_as_over_chat_completions(
    server: Server, defense: str, tmp_path: Path
) -> None:
    chat = ran_behind(server, tmp_path / "chat", "served", defense)
    before = len(server.captured)
    responses = ran_behind(server, tmp_path / "responses", "served-responses", defense)
    assert {key: ending(record) for key, record in responses.items()} == {
        key: ending(record) for key, record in chat.items()
    }
    assert all(record["agentsys"]["status"] == "ok" for record in responses.values())
    asked = server.captured[before:]
    assert {one.path for one in asked} == {"/v1/responses"}
    # DRIFT builds every turn anew from what it read in it, so that nothing of the model's thoughts is left.
    assert any(b'"type":"reasoning"' in one.body for one in asked) == (defense != "drift")


TWO_SUITES = ["benchmark.suites=[banking,slack]", "attack=none,important_instructions", "executor.workers=8"]
PATIENT = "model.retry={attempts: 12, base_s: 0.005, longest_s: 0.05, total_s: 60.0, empty_retries: 12}"


def outcomes(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What tables are made of, and the conversation itself."""
    return {
        path: (r["agentsys"]["status"], r["utility"], r["agentsys"]["security"], r["messages"])
        for path, r in records_in(folder).items()
    }


def run_against_server(folder: Path, faults: Faults, defense: str, limit: int) -> tuple[Any, dict[Any, int]]:
    with serve(build_served_model(), faults=faults) as server:
        session = prepare_session(
            [
                "model=served",
                f"model.base_url={server.openai_base_url}",
                "model.timeout_s=5",
                PATIENT,
                f"defense={defense}",
                f"limit_per_suite={limit}",
                f"logdir={folder}",
                *TWO_SUITES,
            ]
        )
        return session.execute(Silent()), server.faults


@pytest.mark.parametrize(
    ("defense", "limit"), [("none", 2), pytest.param("agentsys", 12, marks=pytest.mark.slow)]
)
def test_with_three_calls_in_ten_failing_the_outcomes_are_those_of_the_fault_free_run(
    tmp_path: Path, defense: str, limit: int
) -> None:
    run_against_server(tmp_path / "calm", Faults(), defense, limit)
    stormy = Faults(rate=0.3, seed=3, max_in_a_row=4, hold_s=0.05)
    outcome, faults = run_against_server(tmp_path / "storm", stormy, defense, limit)
    assert outcome.errors == 0
    # A model that is told of bad arguments says one thing more: then scores alone are the same.
    compared = slice(3 if FaultKind.BAD_ARGUMENTS in faults else None)
    storm, calm = outcomes(tmp_path / "storm"), outcomes(tmp_path / "calm")
    assert {name: one[compared] for name, one in storm.items()} == {
        name: one[compared] for name, one in calm.items()
    }
    # Which are met depends on the order in which eight workers ask.
    assert len(faults) >= (8 if defense == "agentsys" else 5), f"too few kinds of fault were met: {faults}"
    if (
        defense == "none"
    ):  # AgentSys also sorts its tools into privileges, once for all cases and booked to none
        used = [
            usage
            for r in records_in(tmp_path / "storm").values()
            for usage in r["agentsys"]["usage"].values()
        ]
        assert sum(usage["requests"] - usage["calls"] for usage in used) == sum(
            # The model is told of bad arguments: nothing is sent again.
            count
            for kind, count in faults.items()
            if kind is not FaultKind.BAD_ARGUMENTS
        )
