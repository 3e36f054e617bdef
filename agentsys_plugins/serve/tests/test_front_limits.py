"""Many clients at once, many that leave, and a server that is killed: nothing grows, no answer is lost."""

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
from front_clients import Client, conversations_threads, count_resting, desk_of, refused, wait_until
from scripted_for_serving import Scripted, calls, says

from agentsys.models.chat import ChatReply, ChatRequest, text_of
from agentsys_plugins.serve.conversation_router import ConversationLimits
from agentsys_plugins.serve.defended_agent import Dialogue
from baselines.none import NoDefense

AT_ONCE = int(os.environ.get("AGENTSYS_FRONT_AT_ONCE", "20"))
"""Conversations side by side; 200 were run by hand."""
LEFT = int(os.environ.get("AGENTSYS_FRONT_LEFT", "60"))
"""Conversations opened and left; 1,000 were run by hand."""


class Echo:
    """Reads the page that it is asked for, and answers with it."""

    name = "echo"

    def complete(self, request: ChatRequest) -> ChatReply:
        if request.messages[-1]["role"] == "user":
            return calls(("read", {"page": text_of(request.messages[-1])}))
        return says(text_of(request.messages[-1]))


def test_conversations_at_once_are_all_under_way_and_all_answered() -> None:
    kept: list[Dialogue] = []
    desk = desk_of(Echo(), NoDefense(), limits=ConversationLimits(at_once=AT_ONCE), kept=kept)
    together = threading.Barrier(AT_ONCE)
    under_way: list[int] = []
    answers: dict[str, str] = {}

    def page(page: str) -> str:
        together.wait(timeout=300)  # Every conversation has handed its call out by now, and none has gone on.
        under_way.append(desk.running_count)
        together.wait(timeout=300)
        return f"page {page}"

    def one(name: str) -> None:
        answers[name] = Client(desk, {"read": page}).ask(name)

    threads = [threading.Thread(target=one, args=(str(number),)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {str(number): f"page {number}" for number in range(AT_ONCE)}
    assert set(under_way) == {AT_ONCE}
    assert len(kept) == AT_ONCE
    wait_until(lambda: desk.running_count == 0, "a turn goes on")


def test_conversations_that_are_left_end_by_themselves_and_are_forgotten() -> None:
    kept: list[Dialogue] = []
    limits = ConversationLimits(at_once=LEFT, max_resting=10, idle_s=1.0)
    desk = desk_of(Scripted(calls(("read", {"page": "1"}))), NoDefense(), limits=limits, kept=kept)
    clients = [Client(desk, {"read": lambda page: "late"}) for _ in range(LEFT)]
    for number, client in enumerate(clients):
        client.say(f"Go {number}.")
    wait_until(lambda: desk.running_count == 0, "a turn goes on")
    assert {one.error_kind for one in kept} == {"conversation_ended"}
    assert len(kept) == LEFT
    clients[0].run_calls()
    with refused(409):
        clients[0].send()
    Client(desk, {}).say("One more.")
    assert count_resting(desk) <= limits.max_resting + 1
    desk.stop()
    assert not conversations_threads()


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


def test_the_requests_of_other_keys_give_a_key_no_time_back() -> None:
    desk = desk_of(Scripted(says("x")), NoDefense())
    busy = desk._find_account("busy")
    busy.cpu_s, busy.seen_s = 30.0, busy.seen_s - 10
    for _ in range(5):
        desk._find_account("other")
    assert busy.cpu_s == 30.0
    assert 24.0 < desk._find_account("busy").cpu_s < 26.0
