"""The served model as plain HTTP: malformed requests, deadlines, many clients, stopping."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_for_serving import Scripted, openai_client, says
from served_faults import Faults
from served_faults import TestServer as Server
from served_faults import serve as serve_faulty
from starlette.datastructures import Headers

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, text_of
from agentsys.models.pricing import TOKENS_PER_MESSAGE
from agentsys_plugins.serve.served_model import model_application, model_server, serve
from agentsys_plugins.serve.served_model.model_application import MAX_BODY, check_access, read_request
from agentsys_plugins.serve.served_model.served_openai import MAX_SCHEMA_BYTES, MAX_TOOLS, OPENAI
from agentsys_plugins.serve.served_model.wire_format import RequestRefused

PATH = "/v1/chat/completions"
HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    with serve_faulty(Scripted(says("x"))) as running:
        yield running


def connect(server: Any) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=100)


def post(server: Any, body: bytes, path: str = PATH, **headers: str) -> tuple[int, Any]:
    connection = connect(server)
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"nonsense", b"{}", b'{"messages": 3}'])
def test_a_malformed_body_is_a_400_in_openais_form(server: Server, body: bytes) -> None:
    status, error = post(server, body)
    assert status == 400
    assert error["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/chat/completions", 404), ("GET", "/v1/secrets", 404), ("DELETE", PATH, 405)],
)
def test_an_unknown_path_or_method_is_told_the_base_url(
    server: Server, method: str, path: str, status: int
) -> None:
    connection = connect(server)
    connection.request(method, path, HELLO)
    reply = connection.getresponse()
    assert reply.status == status
    assert f"{method} {path} (the base URL ends in /v1" in json.loads(reply.read())["error"]["message"]


def test_a_huge_body_is_refused_unread(server: Server) -> None:
    connection = connect(server)
    connection.putrequest("POST", PATH)
    connection.putheader("Content-Length", str(MAX_BODY + 1))
    connection.endheaders()
    connection.send(b"x" * 100_000)
    assert connection.getresponse().status == 413


SAID = {"messages": [{"role": "user", "content": "x"}]}
WITH_SCHEMA = {"type": "json_schema", "json_schema": {"schema": 5}}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"messages": [{"role": "tool", "tool_call_id": "lost", "content": "x"}]}, "'lost'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text parts"),
        ({"tools": [{"function": {}}]}, "function.name: Field required"),
        (
            {"tools": [{"function": {"name": "f", "parameters": [1]}}]},
            "parameters: Input should be an object",
        ),
        ({"tools": [{"type": "web_search"}]}, "type: Input should be 'function'"),
        ({"tools": [{"function": {"name": f"t{n}"}} for n in range(MAX_TOOLS + 1)]}, "at most 1024 items"),
        ({"tools": [{"function": {"name": "f", "description": "x" * MAX_SCHEMA_BYTES}}]}, "262144 at most"),
        ({"response_format": WITH_SCHEMA}, "schema: Input should be a valid dictionary"),
        ({"response_format": "json"}, "response_format: Input should be a valid dictionary"),
        ({"tool_choice": 5}, "tool_choice"),
    ],
)
def test_what_is_not_taken_is_a_400_with_its_sentence(more: Any, told: str) -> None:
    with pytest.raises(RequestRefused, match=told) as refused:
        read_request(OPENAI, json.dumps({**SAID, **more}).encode())
    assert refused.value.status == 400


def test_equal_tools_of_two_requests_are_one_object() -> None:
    body = {**SAID, "tools": [{"function": {"name": "f", "parameters": {"a": 1}}}]}
    first, second = (read_request(OPENAI, json.dumps(body).encode()) for _ in range(2))
    assert first.tools[0].parameters == {"a": 1}
    assert first.tools[0].parameters is second.tools[0].parameters


keys = st.sampled_from(["role", "content", "text", "type", "tool_calls", "function", "id", "name"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(["messages", "tools", "max_tokens", "tool_choice", "response_format", "metadata"])


@given(body=st.dictionaries(fields, json_values))
@settings(max_examples=50, deadline=None)
def test_no_json_body_is_too_strange_to_be_answered(body: Any) -> None:
    try:
        read_request(OPENAI, json.dumps(body).encode())
    except RequestRefused as refused:
        assert refused.status == 400


def test_waiting_requests_overlap() -> None:
    class Slow(Scripted):
        def complete(self, request: ChatRequest) -> ChatReply:
            time.sleep(latency)
            return super().complete(request)

    clients, latency = 32, 0.5
    with serve(Slow(says("x"))) as server:
        started = time.perf_counter()
        threads = [threading.Thread(target=post, args=(server, HELLO)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - started
    assert latency <= took < clients * latency / 2


class Failing:
    """A model that raises."""

    name = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def complete(self, request: ChatRequest) -> ChatReply:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ModelError(ErrorKind.RATE_LIMITED, "slow down", 0.5), 429),
        (ModelError(ErrorKind.CONTEXT_LENGTH, "too long"), 400),
        (ModelError(ErrorKind.MALFORMED_REPLY, "?"), 500),
        (ZeroDivisionError("a bug"), 500),
    ],
)
def test_a_failing_model_is_reported_like_openais_own_failures(error: Exception, status: int) -> None:
    with serve(Failing(error)) as server:
        found, body = post(server, HELLO)
    assert found == status
    assert "a bug" not in body["error"]["message"]


def test_a_client_that_leaves_in_the_middle_does_no_harm(server: Server) -> None:
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    for fragment in (b"POS", b"POST / HTTP/1.1\r\nContent-Length: 50\r\n\r\nabc", b"\x00\xff\r\n\r\n", b""):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(fragment)
    assert post(server, HELLO)[0] == 200


@pytest.mark.parametrize(
    "fragment",
    [
        b"POST /v1/chat",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_half_a_head_and_half_a_body_have_a_deadline(
    server: Server, fragment: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_server, "HEAD_S", 0.2)
    monkeypatch.setattr(model_application, "BODY_S", 0.2)
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(fragment)
        said = b""
        while part := _receive(client):
            said += part
        assert said.startswith(b"HTTP/1.1 408") if b"Length" in fragment else said == b""


def _receive(client: socket.socket) -> bytes:
    try:
        return client.recv(1000)
    except ConnectionResetError:
        return b""


def test_unfinished_bodies_of_one_key_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_application, "MAX_UNREAD", 1000)
    with serve(Scripted(says("x"))) as server:
        half = connect(server)
        half.putrequest("POST", PATH)
        half.putheader("Authorization", "Bearer one")
        half.putheader("Content-Length", "2000")
        half.endheaders()
        half.send(b"{" * 950)
        time.sleep(0.2)
        assert post(server, HELLO, Authorization="Bearer one")[0] == 429
        assert post(server, HELLO, Authorization="Bearer two")[0] == 200


def test_stopping_ends_open_and_idle_connections_at_once() -> None:
    server = serve_faulty(Scripted(says("x")), faults=Faults(1.0, kinds=("timeout",), hold_s=60.0))
    connection, idle = connect(server), connect(server)
    idle.connect()
    connection.request("POST", PATH, HELLO)
    time.sleep(0.1)
    started = time.perf_counter()
    server.stop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    assert not _receive(idle.sock)
    assert time.perf_counter() - started < 30.0
    server.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org", "::", ""])
def test_a_host_that_others_can_reach_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        serve(Scripted(says("x")), host=host)


def test_web_pages_are_refused_without_a_token(server: Server) -> None:
    assert post(server, HELLO, Origin="http://evil.example")[0] == 403
    assert post(server, HELLO, Host="evil.example")[0] == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:65535", "[::1]:80")),
        *((f"{host}:80.attacker.example", 403) for host in ("127.0.0.1", "localhost", "[::1]")),
        *(
            (host, 403)
            for host in ("127.0.0.1.attacker.example", "attacker.example#127.0.0.1", "127.0.0.1:x")
        ),
        *(
            (host, 403)
            for host in ("me@127.0.0.1", "127.0.0.1/", "127.0.0.1?x", "::1", "[::1", "[::2]", "10.0.0.1")
        ),
    ],
)
def test_a_host_is_a_name_of_this_machine_and_a_port_and_nothing_more(
    server: Server, host: str, status: int
) -> None:
    assert post(server, HELLO, Host=host)[0] == status


def test_every_host_of_a_request_is_checked() -> None:
    names = Headers(raw=[(b"host", b"127.0.0.1"), (b"host", b"attacker.example")])
    with pytest.raises(RequestRefused):
        check_access(names, ())


def test_a_port_in_use_is_one_clear_line(server: Server) -> None:
    port = int(server.base_url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port}"):
        serve(Scripted(says("x")), port=port)


def test_system_and_developer_messages_and_all_shapes_of_content_are_understood() -> None:
    model = Scripted(says("x"))
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    with serve_faulty(model) as server:
        openai_client(server).chat.completions.create(
            model="m",
            messages=[
                {"role": "system", "content": "be brief"},
                {"role": "developer", "content": parts},  # type: ignore[list-item, misc]
                {"role": "user", "content": parts},  # type: ignore[list-item, misc]
                {"role": "assistant", "content": None},
            ],
        )
    told = model.asked[0].messages
    assert [message["role"] for message in told] == ["system", "system", "user", "assistant"]
    assert [text_of(message) for message in told] == ["be brief", "one\ntwo", "one\ntwo", ""]
    assert told[3]["content"] is None
    assert told[3]["tool_calls"] is None


def test_usage_is_estimated_from_characters_where_the_model_reports_none() -> None:
    with serve_faulty(Scripted(says("y" * 35))) as server:
        usage = openai_client(server).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x" * 3500}]
        )
    assert usage.usage is not None
    assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (
        1000 + TOKENS_PER_MESSAGE,
        10 + TOKENS_PER_MESSAGE,
    )
