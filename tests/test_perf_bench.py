"""`make bench`: the model that it asks, its tables, and its place in perf/README.md."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import bench
import pytest
from constant_model import CALLS, Served, constant_model, make_reply

from agentsys.runs.compose import compose

TOOLS = [
    {"type": "function", "function": {"name": "pay", "parameters": {"required": ["to"]}}},
    {"type": "function", "function": {"name": "look", "parameters": {"required": []}}},
]


def conversation(turn: int) -> dict[str, Any]:
    """A request after so many turns of the model."""
    return {"model": "any", "tools": TOOLS, "messages": [{"role": "assistant", "content": ""}] * turn}


def test_each_conversation_takes_the_same_calls_of_tools_without_arguments() -> None:
    replies = [make_reply(conversation(turn))["choices"][0] for turn in range(CALLS)]
    assert [one["finish_reason"] for one in replies] == ["tool_calls"] * (CALLS - 1) + ["stop"]
    assert {one["message"]["tool_calls"][0]["function"]["name"] for one in replies[:-1]} == {"look"}


def test_the_server_waits_and_counts_calls_of_conversations_alone() -> None:
    with constant_model(0.2) as model:
        for asked in (conversation(0), conversation(CALLS), conversation(0) | {"tools": TOOLS[:1]}):
            with urllib.request.urlopen(f"{model.base_url}/chat/completions", json.dumps(asked).encode()):
                pass
        served = model.served()
    assert (served.calls, served.conversations) == (2, 1)
    assert served.seconds >= 0.4


def test_the_share_of_the_limit_is_of_calls_between_the_first_request_and_the_last_reply() -> None:
    served = Served(calls=80, conversations=20, begun_s=10.0, ended_s=12.0)
    assert bench.Measured(served, 1.0).calls_per_s == 40


def test_our_command_composes() -> None:
    (found,) = compose(list(bench.ours(64, 256).command[4:-1]))
    assert (found.executor.workers, found.limit_per_suite) == (64, 64)


def test_copied_records_are_further_epochs(tmp_path: Path) -> None:
    record = tmp_path / "model__none" / "slack" / "user_task_0" / "direct" / "injection_task_1.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"epoch": 0}')
    bench.multiply_records(tmp_path, 3)
    assert sorted(path.read_text() for path in tmp_path.rglob("*.json")) == [
        f'{{"epoch": {epoch}}}' for epoch in range(3)
    ]


def test_figures_are_written_between_the_marks_of_the_page_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n")
    for text in ("first figures", "second figures"):
        bench.write_tables(text, page)
    assert page.read_text() == f"before\n{bench.BEGIN}\n\nsecond figures\n\n{bench.END}\nafter\n"
    assert all(bench.README.read_text(encoding="utf-8").count(mark) == 1 for mark in (bench.BEGIN, bench.END))


def test_a_command_that_fails_ends_the_bench_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        bench.cpu_of(["sh", "-c", "echo no such thing >&2; exit 3"], tmp_path)
