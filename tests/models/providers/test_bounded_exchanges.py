"""An exchange has a connection for itself, ends in time, and leaves nothing half done behind."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module

import pytest
from hostile_server import Answer, hostile

from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.providers.bounded_http import ExchangeLimits, make_bounded_client

BIG = b"x" * 20_000_000
"""More than the system takes for a server that does not read."""


def answer(body: bytes = b"yes", status: bytes = b"200 OK", length: int | None = None) -> bytes:
    said = len(body) if length is None else length
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, said, body)


class Asking:
    """A client that posts to one address.

    Args:
        family: The library it is made of: `httpx` or `httpx2`.
        base_url: Where to.
        timeout_s: For each exchange.
        key: The key in use.
    """

    def __init__(self, family: str, base_url: str, timeout_s: float = 30.0, key: str | None = None) -> None:
        limits = ExchangeLimits(timeout_s, 1_000_000, key)
        self.http = make_bounded_client(import_module(family).Client, limits)
        self._url = base_url + "/there"

    def ask(self, body: bytes = b"?") -> bytes:
        found: bytes = self.http.post(self._url, content=body).content
        return found

    def error(self, body: bytes = b"?") -> ModelError:
        with pytest.raises(ModelError) as caught:
            self.ask(body)
        return caught.value


@pytest.fixture(params=["httpx", "httpx2"])
def family(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
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


def test_a_request_that_a_closing_server_took_is_not_sent_again_by_itself(family: str) -> None:
    """It may have been answered and paid for: who asks decides."""

    def closes() -> Iterator[bytes]:
        yield b""
        raise ConnectionError

    with hostile(in_turn([answer()], closes()), keeps=True) as server:
        asking = Asking(family, server.base_url)
        asking.ask()
        assert asking.error().kind is ErrorKind.CONNECTION
        assert len(server.requests) == 2 and len(set(server.places)) == 1


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
    family: str, broken: Answer, kind: ErrorKind
) -> None:
    with hostile(in_turn(broken, [answer()]), keeps=True) as server:
        asking = Asking(family, server.base_url, timeout_s=1.0)
        assert asking.error().kind is kind
        assert asking.ask() == b"yes"
        assert len(set(server.places)) == 2


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


def test_a_refusal_while_the_body_is_still_being_sent_is_read(family: str) -> None:
    with refusing(answer(b"too much", b"413 Too Large")) as base_url:
        asking = Asking(family, base_url)
        for _ in range(2):
            assert "too much" in str(asking.error(BIG))


@pytest.mark.parametrize("pause_s", [None, 0.02])
def test_a_server_that_does_not_read_or_slowly_is_a_timeout(family: str, pause_s: float | None) -> None:
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


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the variables of proxies, and unsets all others."""

    def say(**given: str) -> None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    return say


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_is_asked_with_its_credentials(
    family: str, scheme: str, proxied: Callable[..., None]
) -> None:
    with hostile(lambda _: [answer(b"?", b"502 Bad Gateway")]) as proxy:
        proxied(**{f"{scheme.upper()}_PROXY": f"me:pass@127.0.0.1:{proxy.port}"})
        found = Asking(family, f"{scheme}://vendor.invalid").error()
    line = b"CONNECT vendor.invalid:443 " if scheme == "https" else b"POST http://vendor.invalid/there "
    assert (
        proxy.requests[0].startswith(line) and b"Proxy-Authorization: Basic bWU6cGFzcw==" in proxy.requests[0]
    )
    assert found.kind is (ErrorKind.CONNECTION if scheme == "https" else ErrorKind.SERVER_ERROR)


@pytest.mark.parametrize(
    ("passed_over", "host", "through"),
    [
        ("", "127.0.0.1", True),
        ("example.com, 127.0.0.1", "127.0.0.1", False),
        ("*", "127.0.0.1", False),
        ("::1", "127.0.0.1", True),
        ("localhost", "localhost", False),
        ("http://127.0.0.1", "127.0.0.1", False),
        ("https://127.0.0.1", "127.0.0.1", True),
        (".vendor.invalid,endor.invalid", "vendor.invalid", True),
    ],
)
def test_a_host_named_in_no_proxy_is_asked_itself(
    family: str, passed_over: str, host: str, through: bool, proxied: Callable[..., None]
) -> None:
    """As `httpx` itself reads the variable."""
    with hostile(lambda _: [answer()]) as proxy, hostile(lambda _: [answer()]) as server:
        proxied(ALL_PROXY=proxy.base_url, NO_PROXY=passed_over)
        address = f"http://{host}:{server.port}"
        assert Asking(family, address).ask() == b"yes"
        assert (len(proxy.requests), len(server.requests)) == ((1, 0) if through else (0, 1))
        with import_module(family).Client() as own:
            assert own.post(f"{address}/there").content == b"yes"
        assert (len(proxy.requests), len(server.requests)) == ((2, 0) if through else (0, 2))


def test_a_servers_cookie_comes_back_and_one_taken_away_does_not(family: str) -> None:
    cookies = iter([b"stick=a1; Path=/", b"", b"stick=; Path=/; Max-Age=0", b""])

    def next_one(_: bytes) -> Answer:
        return [answer().replace(b"\r\n\r\n", b"\r\nSet-Cookie: " + next(cookies) + b"\r\n\r\n")]

    with hostile(next_one, keeps=True) as server:
        asking = Asking(family, server.base_url)
        for _ in range(4):
            assert asking.ask() == b"yes"
    assert [b"Cookie: stick=a1\r\n" in request for request in server.requests] == [False, True, True, False]


def test_what_a_server_wrote_into_a_broken_answer_is_told_without_the_key(family: str) -> None:
    key = "sk-test-0123456789abcdefghij"
    with hostile(lambda _: [b"HTTP/1.1 200 OK\r\n" + key.encode() + b"\r\n\r\n"]) as server:
        asking = Asking(family, server.base_url, key=key)
        found = asking.error()
    assert found.kind is ErrorKind.CONNECTION
    assert "illegal header line" in str(found) and key not in str(found)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "http://a..b", "http://vendor.invalid", "ftp://127.0.0.1"]
)
def test_an_address_where_nobody_answers_is_no_connection(family: str, address: str) -> None:
    found = Asking(family, address).error()
    assert found.kind is ErrorKind.CONNECTION
    assert ("an unsupported protocol 'ftp://'" in str(found)) is address.startswith("ftp:")
