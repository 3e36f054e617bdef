"""The server stops when it is told, and no key's work keeps another waiting."""

from __future__ import annotations

import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from front_clients import PATIENCE_S, READ, Client, desk_of, refused, served_desk
from scripted_for_serving import Scripted, calls, says

from agentsys.models.chat import ChatReply, ChatRequest, user
from agentsys.models.endings import Ending
from agentsys_plugins.serve import conversation_router
from agentsys_plugins.serve.conversation_router import ConversationLimits
from agentsys_plugins.serve.defended_agent import Dialogue
from agentsys_plugins.serve.served_model import json_check, serve
from agentsys_plugins.serve.served_model.json_worker import MAX_VALUES
from agentsys_plugins.serve.served_model.wire_format import RequestRefused
from baselines.none import NoDefense


class Stuck:
    """A model that does not answer until it is let go."""

    name = "stuck"

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.set()
        assert self.let_go.wait(PATIENCE_S)
        return says("Late.")


def test_a_turn_that_does_not_come_to_its_end_is_told_that_the_server_stops_and_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_router, "_STOP_S", 0.2)
    model, kept = Stuck(), list[Dialogue]()
    desk = desk_of(model, NoDefense(), kept=kept)
    client = Client(desk, {})
    client.messages.append(user("Go."))
    _, reply = desk.take(client.request())
    assert model.asked.wait(PATIENCE_S)
    started = time.monotonic()
    desk.stop()
    assert time.monotonic() - started < 10
    with pytest.raises(RequestRefused, match="the server is stopping"):
        reply.result(0)
    assert [one.error for one in kept] == ["the server is stopping"]
    with refused(503):
        client.send()
    model.let_go.set()
    desk._pool.shutdown()
    assert len(kept) == 1  # The thread that comes to its end later changes nothing.


@pytest.mark.slow
def test_sigterm_ends_a_server_whose_model_does_not_answer_and_its_client_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        model = ["model=served", f"model.base_url=http://127.0.0.1:{port}/v1"]
        command = [sys.executable, "-m", "agentsys", "serve", "--port", "0", *model, "defense=none"]
        process = subprocess.Popen(
            [*command, f"logdir={tmp_path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert process.stdout is not None
            banner = ""
            while not (found := re.search(r"OpenAI at\s+(http\S+/v1)", banner)):
                line = process.stdout.readline()
                assert line, banner
                banner += line
            body = {"messages": [{"role": "user", "content": "Go."}]}
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(httpx.post, f"{found[1]}/chat/completions", json=body, timeout=300)
                silent.settimeout(120)
                connection = silent.accept()[0]  # The model was asked.
                process.send_signal(signal.SIGTERM)
                # Well before the model's own `timeout_s` of 300, and with time for a machine that has much to do.
                assert process.wait(120) == 0
                reply = asked.result()
                connection.close()
            assert (reply.status_code, reply.json()["error"]["code"]) == (409, "over")
            assert "the server is stopping" in reply.json()["error"]["message"]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]


def test_cpu_time_counts_while_a_turn_is_at_work() -> None:
    class Busy:
        name = "busy"
        stop = threading.Event()

        def complete(self, request: ChatRequest) -> ChatReply:
            while not self.stop.is_set():
                sum(range(1000))
            return says("x")

    desk = desk_of(Busy(), NoDefense(), limits=ConversationLimits(at_once=2, cpu_s=0.2))
    client = Client(desk, {}, owner="busy")
    client.messages.append(user("Go."))
    _, reply = desk.take(client.request(owner="busy"))
    desk._find_account("other")

    turn = next(iter(desk._find_account("busy").running.values()))
    end = time.monotonic() + PATIENCE_S
    while time.clock_gettime(turn._cpu_clock or 0) - turn._cpu_booked_s < 1 and time.monotonic() < end:
        time.sleep(0.1)  # A busy machine gives it the time late.
    with pytest.raises(RequestRefused, match="its share of this server's time"):
        desk.take(client.request(owner="busy"))
    Busy.stop.set()
    reply.result(PATIENCE_S)


def test_what_it_takes_to_read_bodies_is_booked_to_their_key_refused_or_not() -> None:
    desk = desk_of(Scripted(says("x")), NoDefense(), limits=ConversationLimits(cpu_s=1e-4))
    with serve(desk) as server, httpx.Client(headers={"Authorization": "Bearer hostile"}) as hostile:
        url = f"{server.openai_base_url}/chat/completions"
        raw = b'{"messages": [], "more": [%b0]}' % (b'"a text of some length", ' * 30_000)
        replies = [hostile.post(url, content=raw, timeout=60) for _ in range(2)]
        assert [one.status_code for one in replies] == [400, 400]  # Nobody else asks.
        body = {"messages": [{"role": "user", "content": "Go."}]}
        httpx.post(url, json=body, timeout=60)
        refused_one = hostile.post(url, content=raw, timeout=60)
        assert refused_one.status_code == 429 and "its share" in refused_one.text
    desk.stop()


def test_what_other_processes_did_for_a_key_is_booked_to_it_ended_or_not() -> None:
    desk = desk_of(Scripted(says("x")), NoDefense(), limits=ConversationLimits(cpu_s=0.4))
    wide = {"properties": {f"p{n}": {"type": "string", "pattern": "^[a-z]$"} for n in range(3000)}}
    assert json_check.find_bad_schema([("work", wide)], "busy") is None
    slow = {"properties": {"a": {"pattern": "^(a|aa)+$"}}}
    for number in range(5):
        told = json_check.find_misfit(json.dumps(slow).encode(), {"a": "a" * (60 + number) + "!"}, "busy")
        assert told is not None and "takes more than" in told
    desk.book("other", 0.0)
    assert not desk.book("busy", 0.0)
    assert json_check.take_cpu("busy") == 0.0 and desk.book("other", 0.0)
    desk.stop()


def test_a_reply_that_was_cut_says_so() -> None:
    cut = ChatReply(says("So far").message, ending=Ending.CUT)
    with served_desk(Scripted(cut), NoDefense()) as server:
        body = {"messages": [{"role": "user", "content": "Go."}]}
        reply = httpx.post(f"{server.openai_base_url}/chat/completions", json=body, timeout=60).json()
    assert reply["choices"][0]["finish_reason"] == "length"


def test_a_body_of_too_many_values_is_refused_before_it_is_read() -> None:
    with served_desk(Scripted(says("x")), NoDefense()) as server:
        raw = b'{"messages": [{"role": "user", "content": "Go."}], "more": [%b0]}' % (b"0," * 3 * MAX_VALUES)
        reply = httpx.post(f"{server.openai_base_url}/chat/completions", content=raw, timeout=60)
        assert (reply.status_code, "JSON values" in reply.json()["error"]["message"]) == (400, True)
        text = {"messages": [{"role": "user", "content": "x," * 500_000}]}
        assert (
            httpx.post(f"{server.openai_base_url}/chat/completions", json=text, timeout=60).status_code == 200
        )


def test_a_process_that_does_not_hear_its_clock_is_ended_and_the_next_one_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_check, "_START_S", 0.0)
    worker = json_check._Worker()
    worker.ask(b"c", 30.0, b"1")
    told = worker.ask(b"c", 1e-9, b"[" + b"1," * 1_000_000 + b"1]")
    assert told is not None and "takes more than" in told
    assert worker.ask(b"c", 30.0, b"1") is None
    worker.close()


def hostile_requests() -> list[dict[str, Any]]:
    """Forty requests that are much work: by how large and how deep they are, within what is taken or just beyond."""

    def tool(parameters: Any) -> dict[str, Any]:
        return {"tools": [{"type": "function", "function": {"name": "work", "parameters": parameters}}]}

    words: Any = {"messages": [{"role": "user", "content": "Go."}]}
    found = []
    for number in range(8):
        size = 400 * (number + 1)
        wide = {
            "properties": {f"p{n}": {"type": "string", "pattern": f"^[a-z]{{{n % 9}}}$"} for n in range(size)}
        }
        deep: Any = {"type": "string"}
        for _ in range(12 * (number + 1)):
            deep = {"type": "object", "properties": {"a": deep}}
        many = {"allOf": [{"properties": {"a": {"enum": list(range(20))}}} for _ in range(size // 4)]}
        numbers = {"properties": {"a": {"multipleOf": 10.0 ** -(30 * number), "maximum": 10.0**300}}}
        found += [{**words, **tool(one)} for one in (wide, deep, many, numbers)]
        found.append({**words, "more": list(range(60_000 * (number + 1)))})
    return found


@pytest.mark.slow
def test_forty_hostile_requests_of_one_key_leave_another_its_pace() -> None:
    class Reader:
        name = "reader"

        def complete(self, request: ChatRequest) -> ChatReply:
            if not request.tools or request.messages[-1]["role"] == "tool":
                return says("Done.")
            return calls(
                (request.tools[0].name, {"page": "1"} if request.tools[0].name == "read" else {"a": "x"})
            )

    with served_desk(Reader(), NoDefense()) as server:
        url = f"{server.openai_base_url}/chat/completions"

        def measure(until: Any) -> float:
            took = []
            with httpx.Client(headers={"Authorization": "Bearer honest"}, timeout=60) as honest:
                tools = [{"type": "function", "function": {"name": "read", "parameters": READ.parameters}}]
                while len(took) < 30 or not until():
                    started = time.perf_counter()
                    messages: list[Any] = [{"role": "user", "content": "Read."}]
                    message = honest.post(url, json={"messages": messages, "tools": tools}).json()["choices"][
                        0
                    ]["message"]
                    messages += [
                        message,
                        {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "x"},
                    ]
                    assert honest.post(url, json={"messages": messages, "tools": tools}).status_code == 200
                    took.append(time.perf_counter() - started)
            return statistics.median(took)

        measure(lambda: True)
        usual = measure(lambda: True)
        with (
            ThreadPoolExecutor(4) as pool,
            httpx.Client(headers={"Authorization": "Bearer hostile"}) as hostile,
        ):
            sent = [
                pool.submit(hostile.post, url, content=json.dumps(one), timeout=120)
                for one in hostile_requests()
            ]
            beside = measure(lambda: all(one.done() for one in sent))
        assert {one.result().status_code for one in sent} <= {200, 400, 429}
    assert len(sent) == 40
    assert beside <= 2 * usual + 0.005
