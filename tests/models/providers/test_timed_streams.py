"""An exchange has a connection for itself, sends in one piece, and leaves nothing half done behind."""

from __future__ import annotations

import errno
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from hostile_server import Answer, hostile

from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers import bounded_http, timed_streams
from agentsys.models.providers.bounded_http import bounded_client

BIG = b"x" * 20_000_000
"""More than the system takes for a server that does not read."""


def answer(body: bytes = b"yes", status: bytes = b"200 OK", length: int | None = None) -> bytes:
    said = len(body) if length is None else length
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, said, body)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Asking:
    """A client that posts to one address.

    Args:
        family: The library it is made of: `httpx` or `httpx2`.
        base_url: Where to.
        timeout_s: For each exchange.
    """

    def __init__(self, family: str, base_url: str, timeout_s: float = 30.0) -> None:
        self.http = bounded_client(import_module(family).Client, timeout_s, 1_000_000, None)
        self._pool, self._first = self.http.handed_over(
            lambda: self.http.post(base_url + "/there", content=b"?")
        )

    def ask(self, body: bytes = b"?") -> bytes:
        """The answer, by the client's own exchange."""
        kept = [(name, value) for name, value in self._first.headers if name.lower() != b"content-length"]
        headers = [*kept, (b"Content-Length", b"%d" % len(body))]
        made = type(self._first)(
            "POST", self._first.url, headers=headers, content=body, extensions=self._first.extensions
        )
        found: bytes = self.http.exchange(self._pool, made)
        return found

    def error(self, body: bytes = b"?") -> ModelError:
        with pytest.raises(ModelError) as caught:
            self.ask(body)
        return caught.value


@pytest.fixture(params=["httpx", "httpx2"])
def family(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.fixture(params=["the system keeps time", "httpcore's own steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without sockets that keep the time themselves."""
    if request.param == "httpcore's own steps":
        monkeypatch.setattr(timed_streams, "_plain_socket", lambda _: None)
    return str(request.param)


def in_turn(*answers: Answer) -> Callable[[bytes], Answer]:
    left = iter(answers)
    return lambda _: next(left)


def test_a_connection_is_used_again_also_after_an_error_that_was_read_to_its_end(family: str) -> None:
    answers = in_turn([answer()], [answer(b"{}", b"429 Too Many")], [answer()], [answer()])
    with hostile(answers, keeps=True) as server:
        asking = Asking(family, server.base_url)
        asking.ask()
        assert asking.error().kind is ErrorKind.RATE_LIMITED
        assert asking.ask() == asking.ask() == b"yes"
        assert len(set(server.places)) == 1 and len(server.places) == 4


def test_a_connection_that_the_server_closed_while_idle_is_not_used(family: str) -> None:
    with hostile(lambda _: [answer()]) as server:  # it keeps none, and does not say so
        asking = Asking(family, server.base_url)
        for _ in range(3):
            assert asking.ask() == b"yes"
            until(lambda: len(server.ended) == len(server.places))
        assert len(set(server.places)) == 3


def test_a_request_that_a_closing_server_took_is_not_sent_again_by_itself(family: str, steps: str) -> None:
    """It may have been answered and paid for: who asks decides."""

    def closes() -> Iterator[bytes]:
        yield b""
        raise ConnectionError

    with hostile(in_turn([answer()], closes()), keeps=True) as server:
        asking = Asking(family, server.base_url)
        asking.ask()
        assert asking.error().kind is ErrorKind.CONNECTION
        assert len(server.requests) == 2 and len(set(server.places)) == 1


def test_a_request_by_a_connection_that_was_just_closed_is_an_error_that_passes(
    family: str, steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closed it after it was looked at."""
    monkeypatch.setattr(bounded_http._Idle, "push", lambda idle, one: idle._kept.append(one))
    monkeypatch.setattr(bounded_http._Idle, "pop", lambda idle: idle._kept.pop() if idle._kept else None)
    with hostile(lambda _: [answer()]) as server:
        asking = Asking(family, server.base_url)
        asking.ask()
        until(lambda: len(server.ended) == 1)
        assert asking.error().kind is ErrorKind.CONNECTION
        assert asking.ask() == b"yes"
        assert len(server.requests) == len(set(server.places)) == 2


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ([answer(b"ye", length=3), 5.0, b"s"], ErrorKind.TIMEOUT),
        ([b"HTTP/1.1 200 OK\r\n", 5.0, b"\r\n"], ErrorKind.TIMEOUT),
        ([5.0, answer(b"late")], ErrorKind.TIMEOUT),
        ([answer(b"x" * 1_000_001)], ErrorKind.MALFORMED_REPLY),
        ([b"HTTP/1.1 200 OK\r\nno header\r\n\r\n"], ErrorKind.CONNECTION),
        ([b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"], ErrorKind.BAD_REQUEST),
    ],
)
def test_a_connection_of_an_exchange_that_broke_off_is_closed(
    family: str, steps: str, broken: Answer, kind: ErrorKind
) -> None:
    with hostile(in_turn(broken, [answer()]), keeps=True) as server:
        asking = Asking(family, server.base_url, timeout_s=1.0)
        assert asking.error().kind is kind
        assert asking.ask() == b"yes"
        assert len(set(server.places)) == 2


def test_headers_and_body_are_sent_in_one_piece(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def send(self: Any, data: Any, *flags: int) -> int:
        sent.append(len(data))
        return super(socket.socket, self).send(data, *flags)

    monkeypatch.setattr(socket.socket, "send", send, raising=False)
    with hostile(lambda _: [answer()], keeps=True) as server:
        asking = Asking(family, server.base_url)
        for body in (b"", b"?", b"x" * 30_000):
            asking.ask(body)
        assert sent == [len(request) for request in server.requests]


def test_a_large_body_arrives_whole(family: str, steps: str) -> None:
    body = bytes(range(256)) * 8_000
    with hostile(lambda request: [answer(b"%d" % (len(request.partition(b"\r\n\r\n")[2])))]) as server:
        assert Asking(family, server.base_url).ask(body) == b"%d" % len(body)
        assert server.requests[0].endswith(body)


def test_a_server_that_begins_to_read_late_gets_all_of_a_large_body(family: str, steps: str) -> None:
    heard = bytearray()

    def read_late() -> None:
        connection, _ = listener.accept()
        with connection:
            time.sleep(0.3)
            while len(heard) < len(BIG):
                heard.extend(connection.recv(1_000_000))
            connection.sendall(answer())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=read_late, daemon=True).start()
        assert Asking(family, f"http://127.0.0.1:{listener.getsockname()[1]}").ask(BIG) == b"yes"
    assert heard.endswith(BIG)


@contextmanager
def refusing(reply: bytes) -> Iterator[str]:
    """A server that answers when it has read headers, and closes on what is still being sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(reply)
                    time.sleep(0.2)

        threading.Thread(target=refuse, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_refusal_while_the_body_is_still_being_sent_is_read(family: str, steps: str) -> None:
    with refusing(answer(b"too much", b"413 Too Large")) as base_url:
        asking = Asking(family, base_url)
        for _ in range(2):
            assert "too much" in str(asking.error(BIG))


def test_a_stream_that_could_not_send_all_is_not_used_again(family: str) -> None:
    core = import_module(family.replace("x", "core"))
    raw = core.MockStream([b"an answer"])

    def refuse(*_: Any, **__: Any) -> None:
        raise core.WriteError("refused")

    raw.write = refuse
    stream = timed_streams._TimedStream(raw, timed_streams.ExchangeClock(30.0))
    stream.write(b"request")
    assert not stream.get_extra_info("is_readable")
    assert stream.read(100) == b"an answer"
    assert stream.get_extra_info("is_readable")


@pytest.mark.parametrize("pause_s", [None, 0.02])
def test_a_server_that_does_not_read_or_slowly_is_a_timeout(
    family: str, steps: str, pause_s: float | None
) -> None:
    done = threading.Event()

    def dribble() -> None:
        connection, _ = listener.accept()
        with connection:
            while not done.wait(pause_s):
                connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=dribble, daemon=True).start()
        asking = Asking(family, f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.5)
        start = time.monotonic()
        found = asking.error(BIG)
        assert time.monotonic() - start < 15
        done.set()
    assert found.kind is ErrorKind.TIMEOUT
    assert str(found) in ("timeout: WriteTimeout: timed out", "timeout: no whole reply within 0.5 s")


@pytest.mark.parametrize("pieces", [[], [b"H"]])
def test_a_silent_server_is_a_timeout_in_the_words_it_always_had(
    family: str, steps: str, pieces: list[bytes]
) -> None:
    with hostile(lambda _: [*pieces, 5.0]) as server:
        found = Asking(family, server.base_url, timeout_s=0.3).error()
    assert (found.kind, str(found)) == (ErrorKind.TIMEOUT, "timeout: ReadTimeout: timed out")


def test_a_connection_that_is_reset_says_so(family: str, steps: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            connection, _ = listener.accept()
            connection.recv(10)  # what is unread makes it a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        threading.Thread(target=reset, daemon=True).start()
        found = Asking(family, f"http://127.0.0.1:{listener.getsockname()[1]}").error()
    assert found.kind is ErrorKind.CONNECTION
    assert "ReadError: [Errno " in str(found)


def test_a_network_that_gives_up_is_a_timeout_too(family: str) -> None:
    core = import_module(family.replace("x", "core"))

    class GivenUp(socket.socket):
        def recv(self, *_: int) -> bytes:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    with GivenUp() as given_up, pytest.raises(core.ReadTimeout, match="Connection timed out"):
        timed_streams._PlainSteps(given_up, core).read(100, 1.0)


@pytest.mark.parametrize("time_s", [0.0000001, 0.0999999])
def test_a_time_however_short_is_not_for_ever(family: str, time_s: float) -> None:
    core = import_module(family.replace("x", "core"))
    near, far = socket.socketpair()
    late = threading.Timer(20.0, far.shutdown, [socket.SHUT_WR])
    with near, far:
        steps = timed_streams._PlainSteps(near, core)
        late.start()
        with pytest.raises(core.ReadTimeout):
            steps.read(100, time_s)
        far.sendall(b"there")
        assert steps.read(100, time_s) == b"there"
        late.cancel()


def test_writing_ends_in_time_though_some_of_it_is_taken(family: str) -> None:
    core = import_module(family.replace("x", "core"))

    class Dribbling(socket.socket):
        def send(self, *_: Any) -> int:
            time.sleep(0.01)
            return 1

    start = time.monotonic()
    with Dribbling() as dribbling, pytest.raises(core.WriteTimeout, match="timed out"):
        timed_streams._PlainSteps(dribbling, core).write(memoryview(BIG)[:2000], 0.2)
    assert time.monotonic() - start < 15


def test_the_system_keeps_the_time_of_a_socket_without_tls(family: str) -> None:
    core = import_module(family.replace("x", "core"))
    backend = timed_streams.TimedBackend(core.SyncBackend(), timed_streams.ExchangeClock(30.0))
    with hostile(lambda _: [answer()]) as server:
        stream = backend.connect_tcp("127.0.0.1", server.port, timeout=10.0, socket_options=[])
        assert stream.get_extra_info("socket").gettimeout() is None  # so Python does not poll
        stream.close()


@pytest.mark.parametrize("other", [">ii", "qq8x"])
def test_where_times_are_read_otherwise_python_keeps_them(
    family: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is refused, the second read as another time."""
    monkeypatch.setattr(timed_streams, "_TIMEVAL", struct.Struct(other))
    monkeypatch.setattr(timed_streams, "_PlainSteps", None)
    with hostile(in_turn([answer()], [5.0]), keeps=True) as server:
        asking = Asking(family, server.base_url, timeout_s=1.0)
        assert asking.ask() == b"yes"
        assert asking.error().kind is ErrorKind.TIMEOUT


def test_closing_the_client_closes_its_connections_and_those_that_come_back_later(family: str) -> None:
    may_go = threading.Event()

    def slowly(request: bytes) -> Answer:
        if request.endswith(b"slow"):
            may_go.wait(60)
        return [answer()]

    with hostile(slowly, keeps=True) as server, ThreadPoolExecutor(1) as pool:
        asking = Asking(family, server.base_url)
        slow = pool.submit(asking.ask, b"slow")
        until(lambda: len(server.requests) == 1)
        asking.ask()
        asking.http.close()
        until(lambda: len(server.ended) == 1)
        may_go.set()
        assert slow.result(60) == b"yes"
        until(lambda: len(server.ended) == 2)
        assert sorted(server.ended) == sorted(server.places)


def test_threads_get_their_own_answers_by_no_more_connections_than_there_are_threads(
    family: str, steps: str
) -> None:
    numbers = itertools.count()

    def echo(request: bytes) -> Answer:
        return [answer(request.rpartition(b"\r\n\r\n")[2])]

    with hostile(echo, keeps=True) as server, ThreadPoolExecutor(8) as pool:
        asking = Asking(family, server.base_url)

        def ask_often(_: int) -> None:
            for _ in range(40):
                said = b"%d" % next(numbers)
                assert asking.ask(said) == said

        list(pool.map(ask_often, range(8)))
        assert len(server.requests) == 320 and len(set(server.places)) <= 8


def test_a_connection_under_way_is_nobody_elses(family: str) -> None:
    together = threading.Barrier(4)

    def when_all_ask(_: bytes) -> Answer:
        together.wait(60)
        return [answer()]

    with hostile(when_all_ask, keeps=True) as server, ThreadPoolExecutor(4) as pool:
        asking = Asking(family, server.base_url)
        for _ in range(3):
            assert list(pool.map(asking.ask, [b"?"] * 4)) == [b"yes"] * 4
        assert len(set(server.places)) == 4


def test_a_pool_that_makes_no_connections_for_others_is_asked_itself(family: str) -> None:
    class Other:
        def __init__(self, pool: Any) -> None:
            self.handle_request = pool.handle_request

    with hostile(lambda _: [answer()], keeps=True) as server:
        asking = Asking(family, server.base_url)
        asking._pool = Other(asking._pool)
        assert asking.ask() == asking.ask() == b"yes"
        assert not asking.http._idle


class Aged:
    """A connection that expires when a test says so."""

    expired = closed = False

    def has_expired(self) -> bool:
        return self.expired

    def close(self) -> None:
        self.closed = True


def test_the_last_used_is_the_next_and_what_expired_below_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_http, "_LOOK_EVERY_S", 0.0)
    idle, (oldest, old, last) = bounded_http._Idle(), (Aged(), Aged(), Aged())
    for each in (oldest, old, last):
        idle.push(each)
    assert idle.pop() is last
    oldest.expired = True
    idle.push(last)
    assert (oldest.closed, old.closed, last.closed) == (True, False, False)
    last.expired = True
    assert idle.pop() is old and last.closed
    assert idle.pop() is None
