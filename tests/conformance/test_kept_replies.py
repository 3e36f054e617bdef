"""Kept replies through real runs: what is paid and got does not depend on how many cases run at once."""

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
from served_faults import TestServer as Server
from served_faults import serve
from small_runs import Silent, records_in

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.agent_server import build_served_model

CASES = ["benchmark.suites=[banking]", "user_tasks=[0,1,3]", "injection_tasks=[0,4]"]
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
    with serve(Drawing(build_served_model())) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with drawing() as running:
        yield running


def ran(server: Server, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Requests that were sent, and records."""
    before = server.requests
    chosen = ["model=served", f"model.base_url={server.openai_base_url}", "model.cache=true", "defense=none"]
    session = prepare_session([*chosen, *CASES, ATTACKS, "preflight=false", f"logdir={folder}", *options])
    assert session.execute(Silent()).errors == 0
    return server.requests - before, records_in(folder)


def said(records: dict[str, Any]) -> dict[str, Any]:
    return {path: (r["utility"], r["security"], r["messages"]) for path, r in records.items()}


@pytest.mark.slow
def test_a_run_pays_the_same_with_one_worker_and_with_32(server: Server, tmp_path: Path) -> None:
    paid = {n: ran(server, tmp_path / str(n), f"executor.workers={n}")[0] for n in (1, 32)}
    asked = sum(
        len(span["calls"]) for r in records_in(tmp_path / "1").values() for span in r["agentsys"]["spans"]
    )
    assert paid[1] == paid[32] < asked


@pytest.mark.parametrize("temperature", ["0.0", "null"])
def test_the_same_cases_again_get_their_own_replies_and_ask_nobody(
    server: Server, temperature: str, tmp_path: Path
) -> None:
    kept = [f"cache.dir={tmp_path / 'kept'}", f"model.temperature={temperature}"]
    paid, first = ran(server, tmp_path / "a", *kept, "executor.workers=32")
    again, second = ran(server, tmp_path / "b", *kept, "executor.workers=1", "cache.mode=read_only")
    assert paid > 0 == again
    assert said(first) == said(second)
    openings = {str(r["messages"][2]) for p, r in first.items() if "/user_task_0/" in p}
    assert (len(openings) == 1) is (temperature == "0.0")


def test_a_cache_that_is_off_is_neither_read_nor_written(server: Server, tmp_path: Path) -> None:
    paid, _ = ran(server, tmp_path / "a", "cache.mode=off")
    again, _ = ran(server, tmp_path / "b", "cache.mode=off", f"cache.dir={tmp_path / 'kept'}")
    assert paid == again > 0
    assert not (tmp_path / "a/.agentsys/cache").exists() and not (tmp_path / "kept").exists()


def test_nothing_kept_under_read_only_is_an_error_that_names_the_mend(tmp_path: Path) -> None:
    chosen = ["model=gpt-4o-mini", "defense=none", "benchmark.suites=[banking]", "limit_per_suite=1"]
    session = prepare_session([*chosen, f"logdir={tmp_path}", "cache.mode=read_only"]).preflight()
    assert session.execute(Silent()).errors == 1
    (record,) = records_in(tmp_path).values()
    assert record["agentsys"]["error_kind"] == "cache_miss"
    assert "cache.mode=read_only asks no model" in record["error"]
