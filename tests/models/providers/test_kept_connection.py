"""Exchanges behind a connection's first are what `httpcore` would have made of them, however they are cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest
from hostile_server import Answer, hostile
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers import kept_connection
from agentsys.models.providers.bounded_http import bounded_client
from agentsys.models.providers.kept_connection import KeptConnection

FIRST = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
STATED = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nye\r\n1\r\ns\r\n0\r\nX-Sum: 1\r\n\r\n"
)


@pytest.fixture(params=["httpcore", "httpcore2"])
def core(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@dataclass(frozen=True)
class Seen:
    """What came of an exchange."""

    status: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    error: str = ""
    kept: bool = False


def by_httpcore(core: Any, first: bytes, pieces: Sequence[bytes]) -> Seen:
    """The second exchange of a connection that is all `httpcore`'s."""
    connection = opened(core, [first, *pieces])
    try:
        for _ in range(2):
            response = connection.handle_request(asked(core))
            body = response.read()
            response.close()
    except core.ProtocolError as error:
        return Seen(error=type(error).__name__)
    # It asks for what lies behind a whole reply when the connection is used again.
    return Seen(response.status, tuple(response.headers), body, kept=connection.is_available())


def by_ours(core: Any, first: bytes, pieces: Sequence[bytes]) -> Seen:
    connection = KeptConnection(opened(core, [first, *pieces]), to_origin=True)
    read(connection, core)
    try:
        status, headers, body = read(connection, core)
    except core.ProtocolError as error:
        assert not connection.is_idle
        return Seen(error=type(error).__name__)
    return Seen(status, headers, body, kept=connection.is_idle)


def opened(core: Any, pieces: Sequence[bytes]) -> Any:
    return core.HTTPConnection(
        core.Origin(b"http", b"a", 80), network_backend=core.MockBackend([piece for piece in pieces if piece])
    )


def asked(core: Any) -> Any:
    return core.Request(
        "POST", "http://a/", headers=[(b"Host", b"a"), (b"Content-Length", b"1")], content=b"?"
    )


def read(connection: KeptConnection, core: Any) -> tuple[int, tuple[tuple[bytes, bytes], ...], bytes]:
    with connection.answer(asked(core)) as response:
        return response.status, tuple(response.headers), b"".join(response.iter_stream())


def cut(whole: bytes, places: Sequence[int]) -> list[bytes]:
    at = sorted({place % (len(whole) + 1) for place in places})
    return [whole[start:end] for start, end in zip([0, *at], [*at, len(whole)], strict=True)]


def chunks(body: bytes, size: int, space: bytes) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x%b\r\n%b\r\n" % (len(part), space, part) for part in parts) + b"0\r\n\r\n"


NAMES = st.sampled_from(
    [b"Content-Type", b"X-A", b"x-a", b"Retry-After", b"Set-Cookie", b"Connection", b"Date"]
)
VALUES = st.sampled_from([b"", b"a", b"a  b", b"a\r\n b", b"\xc3\xa9", b"close", b"keep-alive", b"x" * 3000])


@st.composite
def replies(draw: st.DrawFn) -> bytes:
    """A reply as servers write them: each way to end a body, interim ones before it, both ends of lines."""
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"]))
    status = draw(st.sampled_from([200, 200, 201, 204, 302, 400, 401, 429, 500, 529]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    body = draw(st.binary(max_size=300)) if status != 204 else b""
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    ends = draw(st.sampled_from(["length", "chunks", "closing"])) if status != 204 else "closing"
    if ends == "length":
        headers.insert(draw(st.integers(0, len(headers))), (b"content-Length", b"%d" % len(body)))
    if ends == "chunks" and version == b"1.1":
        headers.append((b"Transfer-Encoding", b"chunked"))
        body = chunks(body, draw(st.integers(1, 40)), draw(st.sampled_from([b"", b" "])))
    interim = draw(st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue", b"HTTP/1.1 103 Hints\r\nLink: x"]))
    before = interim + b"\r\n\r\n" if interim else b""
    reason = draw(st.sampled_from([b" OK", b" ", b" Too Many Requests"]))
    lines = [b"HTTP/%b %d%b" % (version, status, reason), *(b"%b: %b" % one for one in headers)]
    return before + end.join((*lines, b"", b"")) + body


@given(reply=replies(), places=st.lists(st.integers(0, 4000), max_size=8), lost=st.integers(0, 400))
def test_a_reply_is_read_as_httpcore_reads_it_however_it_is_cut(
    reply: bytes, places: list[int], lost: int
) -> None:
    """`lost`: bytes at its end that never come, for half of them none."""
    core = import_module("httpcore")
    sent = reply[: len(reply) - max(0, lost - 200)]
    pieces = cut(sent, places)
    ours, theirs = by_ours(core, FIRST, pieces), by_httpcore(core, FIRST, pieces)
    assert replace(ours, kept=theirs.kept) == theirs
    assert theirs.kept or not ours.kept


@pytest.mark.parametrize("reply", [STATED, CHUNKED, b"HTTP/1.1 204 No Content\r\n\r\n"])
def test_a_connection_whose_reply_is_read_to_its_end_is_kept(core: Any, reply: bytes) -> None:
    assert by_ours(core, FIRST, [reply]) == by_httpcore(core, FIRST, [reply])
    assert by_ours(core, FIRST, [reply]).kept


@pytest.mark.parametrize(
    "reply",
    [
        STATED + b"more",
        STATED + STATED.replace(b"200 OK", b"500 No"),
        STATED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + b"more",
        STATED.replace(b"1.1", b"1.0").replace(b"\r\n", b"\r\nConnection: keep-alive\r\n", 1),
        b"HTTP/1.1 200 OK\r\n\r\nyes",
    ],
)
def test_a_connection_on_which_more_comes_or_nothing_may_follow_is_not_kept(core: Any, reply: bytes) -> None:
    found = by_ours(core, FIRST, [reply])
    assert (found.status, found.body, found.kept, found.error) == (200, b"yes", False, "")


def test_a_server_that_changes_the_protocol_is_told_by_its_status(core: Any) -> None:
    reply = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n{}"
    assert replace(by_ours(core, FIRST, [reply]), headers=()) == Seen(status=101)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([], "Server disconnected without sending a response."),
        ([STATED[:30]], "Server disconnected without sending a response."),
        ([STATED[:-1]], "the server closed the connection within its reply"),
        ([CHUNKED[:-8]], "the server closed the connection within its reply"),
        ([b"SSH-2.0-OpenSSH\r\n"], "Expected HTTP/"),
        ([STATED.replace(b"3", b"-3")], "Invalid character in Content-Length"),
        ([b"HTTP/1.1 200 OK\r\nX: ", *[b"x" * 60_000] * 3], "more than 102,400 bytes of headers"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000] * 3, "more than 102,400 bytes of headers"),
    ],
)
def test_a_reply_that_breaks_off_or_is_none_says_how(core: Any, pieces: list[bytes], said: str) -> None:
    connection = KeptConnection(opened(core, [FIRST, *pieces]), to_origin=True)
    read(connection, core)
    with pytest.raises(core.RemoteProtocolError, match=said.replace(".", r"\.")):
        read(connection, core)
    assert not connection.is_idle


def test_long_headers_that_come_at_once_are_read(core: Any) -> None:
    reply = STATED.replace(b"\r\n", b"\r\nX: " + b"x" * 60_000 + b"\r\n", 1)
    assert by_ours(core, FIRST, [reply]) == by_httpcore(core, FIRST, [reply])


@pytest.mark.parametrize("value", [b"a\r\nX-Other: b", b"a\nb", b"a\rb", b"a\0b"])
def test_no_header_has_a_second_line(core: Any, value: bytes) -> None:
    connection = KeptConnection(opened(core, [FIRST, STATED]), to_origin=True)
    read(connection, core)
    forged = asked(core)
    forged.headers = [*forged.headers, (b"X-Role", value)]
    with pytest.raises(core.LocalProtocolError), connection.answer(forged):
        pass
    assert not connection.is_idle


def test_a_refusal_while_the_request_is_still_being_sent_is_read_in_the_requests_time(core: Any) -> None:
    connection = KeptConnection(opened(core, [FIRST, STATED]), to_origin=True)
    read(connection, core)
    stream, times = connection._stream, list[float]()

    def refuse(_: bytes, timeout: float) -> None:
        times.append(timeout)
        raise core.WriteError("refused")

    reading = stream.read
    stream.write, stream.read = refuse, lambda most, timeout: times.append(timeout) or reading(most, timeout)
    late = asked(core)
    late.extensions = {"timeout": {"write": 7.0, "read": 9.0}}
    with connection.answer(late) as response:
        assert b"".join(response.iter_stream()) == b"yes"
    assert times == [7.0, 9.0]


def test_an_idle_connection_expires(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(kept_connection.time, "monotonic", lambda: now)
    connection = KeptConnection(opened(core, [FIRST, STATED]), to_origin=True)
    for _ in range(2):
        read(connection, core)
        assert not connection.has_expired()
    now += 5.1
    assert connection.has_expired()


class Waiting:
    """A client with a connection that has served an exchange."""

    def __init__(self, core: Any, base_url: str, timeout_s: float = 30.0) -> None:
        family = import_module(core.__name__.replace("core", "x"))
        self.http = bounded_client(family.Client, timeout_s, 1_000_000, None)
        self._handed = self.http.handed_over(lambda: self.http.post(base_url + "/a?b=c", content=b'{"x": 1}'))
        self.ask()

    def ask(self) -> bytes:
        found: bytes = self.http.exchange(*self._handed)
        return found


def test_the_bytes_are_those_of_the_first_exchange(core: Any) -> None:
    with hostile(lambda _: [STATED], keeps=True) as server:
        assert Waiting(core, server.base_url).ask() == b"yes"
        first, second = server.requests
        assert first == second and first.endswith(b'\r\n\r\n{"x": 1}')
        assert len(set(server.places)) == 1


def endless(head: bytes, piece: bytes) -> Iterator[bytes | float]:
    yield head
    while True:
        yield 0.02
        yield piece


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_a_stream_without_end_is_a_timeout(core: Any, head: bytes, piece: bytes) -> None:
    answers: Iterator[Answer] = iter([[STATED], endless(head, piece)])
    with hostile(lambda _: next(answers), keeps=True) as server:
        waiting = Waiting(core, server.base_url, timeout_s=0.5)
        start = time.monotonic()
        with pytest.raises(ModelError) as caught:
            waiting.ask()
        assert caught.value.kind is ErrorKind.TIMEOUT
        assert time.monotonic() - start < 15


@pytest.mark.parametrize("proxied", [False, True])
def test_what_goes_by_a_proxy_is_httpcores_own(
    core: Any, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy is asked for the whole address."""
    by_itself: list[Callable[..., Any]] = []
    asked_so = KeptConnection._asked
    monkeypatch.setattr(
        KeptConnection, "_asked", lambda self, one: by_itself.append(one) or asked_so(self, one)
    )
    with hostile(lambda _: [STATED], keeps=True) as server:
        if proxied:
            monkeypatch.setenv("http_proxy", server.base_url)
            monkeypatch.setenv("no_proxy", "")
        waiting = Waiting(core, "http://host.invalid" if proxied else server.base_url)
        assert waiting.ask() == b"yes"
        first, second = server.requests
    assert first == second
    assert first.startswith(b"POST http://host.invalid/a?b=c " if proxied else b"POST /a?b=c ")
    assert len(by_itself) == (0 if proxied else 1)
