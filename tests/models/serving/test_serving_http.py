"""The served model as plain HTTP: malformed requests, keep-alive, many clients, stopping."""

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
from scripted_for_serving import Scripted, says

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError
from agentsys.models.serving import Faults, Server, serve
from agentsys.models.serving.exchange import Exchange
from agentsys.models.serving.faults import FaultPlan
from agentsys.models.serving.model_server import MAX_BODY
from agentsys.models.serving.served_openai import OPENAI
from agentsys.models.serving.served_vendors import ANTHROPIC, GEMINI
from agentsys.models.serving.wire_format import WireFormat

OPENAI_PATH = "/v1/chat/completions"
PATHS = [OPENAI_PATH, "/v1/messages", "/v1beta/models/m:generateContent"]
HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(Scripted(says("x")), capture=True) as running:
        yield running


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=100)


def post(server: Server, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    connection = connect(server)
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def vendor_of(error: Any) -> str:
    """Which vendor's error format this is."""
    if error.get("type") == "error":
        return "anthropic"
    return "gemini" if "status" in error["error"] else "openai"


VENDORS = pytest.mark.parametrize(
    ("path", "vendor"), list(zip(PATHS, ["openai", "anthropic", "gemini"], strict=True))
)


@VENDORS
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"nonsense", b"{}", b'{"messages": 3, "contents": 3}'])
def test_a_malformed_body_is_a_400_in_the_vendors_format(
    server: Server, path: str, vendor: str, body: bytes
) -> None:
    status, error = post(server, path, body)
    assert (status, vendor_of(error)) == (400, vendor)


@pytest.mark.parametrize(
    ("path", "headers", "vendor"),
    [
        ("/v1/completions", {}, "openai"),
        ("/chat/completions", {}, "openai"),
        ("/v1/embeddings", {}, "openai"),
        ("/v1/responses/resp_1/cancel", {}, "openai"),
        ("/v1/complete", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/messages/count_tokens", {}, "anthropic"),
        ("/v1/models/m:embedContent", {}, "gemini"),
    ],
)
def test_an_unknown_path_is_a_404_in_the_clients_format(
    server: Server, path: str, headers: dict[str, str], vendor: str
) -> None:
    status, error = post(server, path, HELLO, **headers)
    assert (status, vendor_of(error)) == (404, vendor)


def test_getting_an_unknown_path_is_a_404(server: Server) -> None:
    connection = connect(server)
    connection.request("GET", "/v1/secrets")
    assert connection.getresponse().status == 404


def test_another_method_is_refused_as_json(server: Server) -> None:
    connection = connect(server)
    connection.request("DELETE", OPENAI_PATH)
    reply = connection.getresponse()
    assert reply.status == 405
    assert vendor_of(json.loads(reply.read())) == "openai"


@VENDORS
def test_a_huge_body_is_refused_unread(server: Server, path: str, vendor: str) -> None:
    connection = connect(server)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(MAX_BODY + 1))
    connection.endheaders()
    connection.send(b"x" * 100_000)
    reply = connection.getresponse()
    assert reply.status == 413
    assert vendor_of(json.loads(reply.read())) == vendor


@pytest.mark.parametrize("length", [None, "-1", "many", "9" * 400])
def test_a_post_without_a_usable_length_is_refused(server: Server, length: str | None) -> None:
    connection = connect(server)
    connection.putrequest("POST", OPENAI_PATH)
    if length is not None:
        connection.putheader("Content-Length", length)
    connection.endheaders()
    assert connection.getresponse().status in (411, 413)


def test_a_large_body_within_the_limit_is_answered(server: Server) -> None:
    message = {"role": "user", "content": "x" * 5_000_000}
    assert post(server, OPENAI_PATH, json.dumps({"messages": [message]}).encode())[0] == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (OPENAI_PATH, {"messages": [{"role": "tool", "tool_call_id": "lost", "content": "x"}]}),
        (
            "/v1/messages",
            {
                "max_tokens": 9,
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "lost", "content": "x"}],
                    }
                ],
            },
        ),
        (
            "/v1/models/m:generateContent",
            {
                "contents": [
                    {"role": "user", "parts": [{"functionResponse": {"name": "lost", "response": {}}}]}
                ]
            },
        ),
    ],
)
def test_a_tool_result_that_answers_no_call_is_refused(server: Server, path: str, body: Any) -> None:
    status, error = post(server, path, json.dumps(body).encode())
    assert status == 400
    assert "lost" in error["error"]["message"]


@pytest.mark.parametrize(
    "function", [{}, {"name": 3}, {"name": "f", "parameters": [1]}, {"name": "f", "description": [1]}]
)
def test_a_misshapen_tool_is_refused(server: Server, function: Any) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": function}]}
    assert post(server, OPENAI_PATH, json.dumps(body).encode())[0] == 400


def test_equal_tools_of_two_requests_are_one_object() -> None:
    model = Scripted(says("x"))
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"function": {"name": "f", "parameters": {"a": 1}}}],
    }
    with serve(model) as server:
        for _ in range(2):
            post(server, OPENAI_PATH, json.dumps(body).encode())
    first, second = (asked.tools[0].parameters for asked in model.asked)
    assert first == {"a": 1}
    assert first is second


def test_every_format_streams_what_it_would_have_sent_whole(server: Server) -> None:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "stream": True}
    bodies = {
        OPENAI_PATH: asked,
        "/v1/messages": asked,
        "/v1/responses": {"input": "x", "stream": True},
        "/v1beta/models/m:streamGenerateContent": {"contents": [{"role": "user", "parts": [{"text": "x"}]}]},
    }
    for path, body in bodies.items():
        connection = connect(server)
        connection.request("POST", path, json.dumps(body).encode())
        reply = connection.getresponse()
        text = reply.read().decode()
        assert (reply.status, reply.getheader("Content-Type")) == (200, "text/event-stream"), path
        assert '"x"' in text, path


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "parts",
                    "text",
                    "type",
                    "tool_calls",
                    "function",
                    "id",
                    "functionCall",
                    "name",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
fields = st.sampled_from(
    ["messages", "contents", "tools", "system", "max_tokens", "tool_choice", "generationConfig", "stream"]
)


@given(body=st.dictionaries(fields, json_values), wire=st.sampled_from([OPENAI, ANTHROPIC, GEMINI]))
@settings(max_examples=300, deadline=None)
def test_no_json_body_is_too_strange_to_be_answered(body: Any, wire: WireFormat) -> None:
    exchange = Exchange(Scripted(says("x")), FaultPlan(Faults()))
    assert exchange.respond(wire, "agent", json.dumps(body).encode(), 1).status in (200, 400)


def test_one_connection_carries_many_requests(server: Server) -> None:
    connection = connect(server)
    for _ in range(5):
        connection.request("POST", OPENAI_PATH, HELLO)
        reply = connection.getresponse()
        assert reply.status == 200
        reply.read()
        assert not reply.will_close
    assert server.requests == 5


def test_captured_requests_are_what_was_sent(server: Server) -> None:
    post(server, OPENAI_PATH, HELLO, Authorization="Bearer none")
    captured = server.captured[0]
    assert (captured.path, captured.body) == (OPENAI_PATH, HELLO)
    assert captured.headers["authorization"] == "Bearer none"


def test_nothing_is_captured_unless_asked_for() -> None:
    with serve(Scripted(says("x"))) as server:
        post(server, OPENAI_PATH, HELLO)
        assert (server.requests, server.captured) == (1, [])


def test_waiting_requests_overlap() -> None:
    clients, rounds, latency = 32, 3, 0.3
    with serve(Scripted(says("x")), latency_s=latency) as server:
        started = time.perf_counter()
        threads = [threading.Thread(target=ask_often, args=(server, rounds)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - started
        assert server.requests == clients * rounds
    assert rounds * latency <= took < clients * rounds * latency / 2  # One after the other: twice that.


def ask_often(server: Server, rounds: int) -> None:
    connection = connect(server)
    for _ in range(rounds):
        connection.request("POST", OPENAI_PATH, HELLO)
        connection.getresponse().read()


def test_errors_do_not_wait_for_the_latency() -> None:
    started = time.perf_counter()
    with serve(Scripted(says("x")), latency_s=60.0, faults=Faults(1.0, kinds=("500",))) as server:
        assert post(server, OPENAI_PATH, HELLO)[0] == 500
    assert time.perf_counter() - started < 30.0


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
def test_a_failing_model_is_reported_like_the_vendors_own_failures(error: Exception, status: int) -> None:
    with serve(Failing(error)) as server:
        found, body = post(server, OPENAI_PATH, HELLO)
    assert (found, vendor_of(body)) == (status, "openai")
    assert "a bug" not in body["error"]["message"]


def test_a_client_that_leaves_in_the_middle_does_no_harm(server: Server) -> None:
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    for fragment in (b"POS", b"POST / HTTP/1.1\r\nContent-Length: 50\r\n\r\nabc", b"\x00\xff\r\n\r\n", b""):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(fragment)
    assert post(server, OPENAI_PATH, HELLO)[0] == 200


def test_stopping_ends_open_connections_at_once() -> None:
    server = serve(Scripted(says("x")), faults=Faults(1.0, kinds=("timeout",), hold_s=60.0))
    connection = connect(server)
    connection.request("POST", OPENAI_PATH, HELLO)
    time.sleep(0.05)
    started = time.perf_counter()
    server.stop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    assert time.perf_counter() - started < 30.0
    server.stop()


def test_stopping_ends_idle_connections_too(server: Server) -> None:
    connection = connect(server)
    connection.request("POST", OPENAI_PATH, HELLO)
    connection.getresponse().read()
    server.stop()
    assert connection.sock.recv(1) == b""


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org", "::", ""])
def test_a_host_that_others_can_reach_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        serve(Scripted(says("x")), host=host)


def test_localhost_is_loopback() -> None:
    with serve(Scripted(says("x")), host="localhost") as server:
        assert server.base_url.startswith("http://127.0.0.1:")


def test_a_port_in_use_is_one_clear_line(server: Server) -> None:
    port = int(server.base_url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port}"):
        serve(Scripted(says("x")), port=port)
