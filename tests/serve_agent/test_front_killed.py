"""A server that is killed: what its clients were answered is on disk, and the next server goes on with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from agentsys.analysis.metrics.search_budget import read_searches

CONVERSATIONS = int(os.environ.get("AGENTSYS_FRONT_KILLED", "12"))
"""Conversations and queries that are answered before the server is killed."""
CASE = "agentdojo/slack/user_task_0/injection_task_1/killed"


@contextmanager
def killed_server(folder: Path) -> Iterator[openai.OpenAI]:
    """A server in a process of its own, killed at the end of the block."""
    command = [sys.executable, "-m", "agentsys", "serve", "--port", "0", "model=simulated", "defense=none"]
    process = subprocess.Popen([*command, f"logdir={folder}"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        banner = ""
        while not (found := re.search(r"OpenAI at\s+(http\S+/v1)", banner)):
            line = process.stdout.readline()
            assert line, banner
            banner += line
        yield openai.OpenAI(api_key="k", base_url=found[1], max_retries=0, timeout=300)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def ask(client: openai.OpenAI, model: str, number: int) -> str:
    """The trace of an answer."""
    words = [{"role": "user", "content": f"Hello number {number}."}]
    reply = client.chat.completions.with_raw_response.create(model=model, messages=words)  # type: ignore[arg-type]
    return str(reply.headers["x-agentsys-trace"])


@pytest.mark.slow
def test_a_killed_server_loses_no_answer_that_it_gave(tmp_path: Path) -> None:
    talks: list[str] = []
    queries: list[str] = []
    enough = threading.Event()

    def keep_asking(client: openai.OpenAI, model: str, into: list[str]) -> None:
        for number in range(100 * CONVERSATIONS):  # Far more than are wanted: it is killed under way.
            try:
                into.append(ask(client, model, number))
            except openai.APIError:
                return
            if len(talks) >= CONVERSATIONS and len(queries) >= CONVERSATIONS:
                enough.set()

    with killed_server(tmp_path) as client:
        plans = [("m", talks), ("m", talks), (CASE, queries), (CASE, queries)]
        threads = [threading.Thread(target=keep_asking, args=(client, *plan)) for plan in plans]
        for thread in threads:
            thread.start()
        assert enough.wait(300)
    for thread in threads:
        thread.join()
    for trace in talks:
        [path] = tmp_path.rglob(f"{trace}/none/none.json")
        assert json.loads(path.read_bytes())["agentsys"]["status"] == "ok"
    for place in queries:
        assert json.loads((tmp_path / place).read_bytes())["agentsys"]["status"] == "ok"
    [search] = read_searches([tmp_path]).found
    assert search.queries >= len(queries)
    assert not search.errored
    with killed_server(tmp_path) as client:
        place = ask(client, CASE, 0)
        assert place not in queries
    [search] = read_searches([tmp_path]).found
    assert search.queries > len(queries)
