"""A server that is killed: what its clients were answered is on disk."""

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

CONVERSATIONS = int(os.environ.get("AGENTSYS_FRONT_KILLED", "12"))
"""Conversations that are answered before the server is killed."""


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


def ask(client: openai.OpenAI, number: int) -> str:
    """The trace of an answer."""
    words = [{"role": "user", "content": f"Hello number {number}."}]
    reply = client.chat.completions.with_raw_response.create(model="m", messages=words)  # type: ignore[arg-type]
    return str(reply.headers["x-agentsys-trace"])


@pytest.mark.slow
def test_a_killed_server_loses_no_answer_that_it_gave(tmp_path: Path) -> None:
    talks: list[str] = []
    enough = threading.Event()

    def keep_asking(client: openai.OpenAI) -> None:
        for number in range(100 * CONVERSATIONS):  # Far more than are wanted: it is killed under way.
            try:
                talks.append(ask(client, number))
            except openai.APIError:
                return
            if len(talks) >= CONVERSATIONS:
                enough.set()

    with killed_server(tmp_path) as client:
        threads = [threading.Thread(target=keep_asking, args=(client,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(300)
    for thread in threads:
        thread.join()
    for trace in talks:
        [path] = tmp_path.rglob(f"{trace}/none/none.json")
        assert json.loads(path.read_bytes())["agentsys"]["status"] == "ok"
