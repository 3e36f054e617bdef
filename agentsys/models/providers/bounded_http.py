"""The HTTP client under every vendor's SDK: an exchange ends in time, stays small, and goes nowhere else.

An SDK's own timeout is per read, so a server that sends a byte now and then holds a case for ever; a
compressed or endless body fills the memory; and a redirect takes the key along to another host. Here the
whole exchange (waiting for a connection, sending, headers, body) has one deadline, the decoded body a bound,
and every answer above 299 is our error, before an SDK looks at it.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.kept_connection import KeptConnection
from agentsys.models.providers.sdk_errors import http_error, network_error, redirect_error
from agentsys.models.providers.timed_streams import ExchangeClock, TimedBackend
from agentsys.models.providers.wire_text import malformed, read_json

MOST_REPLY_BYTES = 64_000_000
"""Bytes of a decoded reply that are read by default; the longest real ones have one million."""

_MOST_ERROR_BYTES = 100_000
"""Longer bodies of failed requests are searched for known wordings no further than this, and not parsed."""

_LOOK_EVERY_S = 1.0
"""Seconds between two looks for idle connections that have expired."""


def bounded_client(base: type[Any] | None, timeout_s: float, reply_bytes: int, key: str | None) -> Any:
    """A client for an SDK to send with.

    Args:
        base: The SDK's own client class (of `httpx` or `httpx2`: it differs between releases); None: a plain
            one of whichever is installed.
        timeout_s: Seconds for each whole exchange.
        reply_bytes: Most bytes of a reply's body, decoded.
        key: The key in use, to be cut from error messages.
    """
    if base is None:
        base = import_module("httpx2" if find_spec("httpx2") else "httpx").Client
    certificates = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    made = type("BoundedClient", (_Bounded, base), {})(
        timeout=timeout_s, follow_redirects=False, verify=_tls(_family(base), certificates)
    )
    made.bound(timeout_s, reply_bytes, key)
    return made


def _family(base: type[Any]) -> str:
    names = [cls.__module__.partition(".")[0] for cls in base.__mro__]
    return next(name for name in names if name in ("httpx", "httpx2"))


@lru_cache(maxsize=8)
def _tls(family: str, certificates: tuple[str | None, str | None]) -> Any:
    """What clients check servers with: 40 ms to read, so all clients and copies of a process share it.

    Args:
        family: `httpx` or `httpx2`.
        certificates: What it reads from the environment.
    """
    return import_module(family).create_ssl_context()


class _Bounded:
    """Mixed into a client class of `httpx`: what differs from it."""

    def bound(self, timeout_s: float, reply_bytes: int, key: str | None) -> None:
        """Hold every connection made from now on to the deadline of the exchange it serves."""
        self._reply_bytes, self._key, self._clock = reply_bytes, key, ExchangeClock(timeout_s)
        self._idle: dict[tuple[Any, ...], _Idle] = {}
        for transport in self._transports():
            # httpx 0.28, httpx2 2.16: the pool takes a backend, but the transport does not pass one on.
            pool = transport._pool
            pool._network_backend = TimedBackend(pool._network_backend, self._clock)

    def _transports(self) -> list[Any]:
        mine: Any = self
        return [each for each in (mine._transport, *mine._mounts.values()) if each is not None]

    def send(self, request: Any, **options: Any) -> Any:
        """Send a request and read the whole answer.

        Raises:
            ModelError: If it is late, too large, or no success; SDKs pass it on as a cause.
        """
        options |= {"stream": True, "follow_redirects": False}
        request.headers["Accept-Encoding"] = "gzip"
        sender: Any = super()
        with self._clock.running(), closing(sender.send(request, **options)) as response:
            body = self._body(response.status_code, response.headers, response.iter_raw())
            # With its own headers an SDK would decode the body once more, by whatever charset they name, and
            # not every SDK takes every status below 300 for a success.
            headers = {"Content-Type": "application/json"}
            return type(response)(200, headers=headers, content=body, request=request)

    def handed_over(self, post: Callable[[], Any]) -> tuple[Any, Any] | None:
        """The pool and the request of `httpcore` that it is given where an SDK posts; nothing is sent.

        None if there is not exactly one. Not for a client that others use already.
        """
        found: list[tuple[Any, Any]] = []
        pools = [(transport, transport._pool) for transport in self._transports()]
        for transport, pool in pools:
            transport._pool = _Noting(pool, found)
        try:
            with suppress(Exception):  # each real post ends in the same
                post()
        finally:
            for transport, pool in pools:
                transport._pool = pool
        return found[0] if len(found) == 1 else None

    def exchange(self, pool: Any, request: Any) -> bytes:
        """The body that answers a request of `httpcore`, by one of this client's pools.

        Raises:
            ModelError: As `send`; of whatever else goes wrong on the way.
        """
        mine: Any = self
        try:
            with self._clock.running(), self._answer(pool, request) as response:
                headers = type(mine.headers)(response.headers)
                if "set-cookie" in headers:
                    self._keep_cookies(request.url, headers)
                return self._body(response.status, headers, response.iter_stream())
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - an SDK, too, takes any for the network's
            raise network_error(error, self._key) from None

    @contextmanager
    def _answer(self, pool: Any, request: Any) -> Iterator[Any]:
        """The answer to a request, by a connection that nobody else has meanwhile.

        The pool makes the connections and does not hear of them: it asks the system about every idle one it
        knows, twice a request and under one lock, and each time the thread gives up the interpreter's.
        """
        url = request.url
        if url.scheme not in (b"http", b"https") or not hasattr(pool, "create_connection"):
            # The pool says what is wrong with the address, or is of a release that does it otherwise.
            with closing(pool.handle_request(request)) as response:
                yield response
            return
        idle = self._idle.setdefault((pool, url.scheme, url.host, url.port), _Idle())
        connection = idle.pop()
        if connection is None:
            # Pools for proxies are of other classes.
            to_origin = type(pool).__name__ == "ConnectionPool"
            connection = KeptConnection(pool.create_connection(url.origin), to_origin=to_origin)
        try:
            with connection.answer(request) as response:
                yield response
        finally:
            # It is once request and answer are through to the end, an answer that is an error among them.
            if connection.is_idle:
                idle.push(connection)
            else:
                connection.close()
            mine: Any = self
            if mine.is_closed:
                idle.close()

    def close(self) -> None:
        """Close all connections."""
        sender: Any = super()
        sender.close()
        for idle in list(self._idle.values()):
            idle.close()

    def _keep_cookies(self, url: Any, headers: Any) -> None:
        mine: Any = self
        family = import_module(type(headers).__module__.partition(".")[0])
        address = {"scheme": url.scheme.decode("ascii"), "host": url.host.decode("ascii"), "port": url.port}
        asked = family.Request("POST", family.URL(**address, raw_path=url.target))
        mine.cookies.extract_cookies(family.Response(200, headers=headers, request=asked))

    def _body(self, status: int, headers: Any, raw: Iterable[bytes]) -> bytes:
        if 300 <= status < 400:
            raise redirect_error(status, headers.get("location"), self._key)
        body = b"".join(self._decoded(headers.get("content-encoding", ""), raw))
        if status >= 400:
            raise http_error(status, _error_body(body), headers, self._key)
        if status < 200:
            raise malformed(f"the server answered with HTTP {status}")
        return body

    def _decoded(self, encoding: str, raw: Iterable[bytes]) -> Iterator[bytes]:
        left = self._reply_bytes
        for piece in _pieces(encoding, raw, left + 1):
            self._clock.left_s()
            left -= len(piece)
            if left < 0:
                raise malformed(f"the reply is longer than {self._reply_bytes:,} bytes")
            yield piece


class _Idle:
    """Open connections to one origin that serve no request; the last used is the next. For many threads."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._look_at_s = 0.0

    def pop(self) -> Any | None:
        """One that the server has not closed; None if there is none."""
        while True:
            try:
                found = self._kept.pop()
            except IndexError:
                return None
            if not found.has_expired():
                return found
            found.close()

    def push(self, connection: Any) -> None:
        """Keep one, and now and then close what has expired: the oldest may not be asked for again."""
        self._kept.append(connection)
        if (now := time.monotonic()) >= self._look_at_s:
            self._look_at_s = now + _LOOK_EVERY_S
            with suppress(IndexError):
                while (oldest := self._kept.popleft()).has_expired():
                    oldest.close()
                self._kept.appendleft(oldest)

    def close(self) -> None:
        """Close all."""
        with suppress(IndexError):
            while True:
                self._kept.pop().close()


class _Noting:
    """Stands in for a pool of connections and opens none."""

    def __init__(self, pool: Any, found: list[tuple[Any, Any]]) -> None:
        self._pool, self._found = pool, found

    def handle_request(self, request: Any) -> Any:
        self._found.append((self._pool, request))
        raise ModelError(ErrorKind.CONNECTION, "nothing is sent")


def _pieces(encoding: str, raw: Iterable[bytes], most: int) -> Iterator[bytes]:
    """A body decoded, in pieces of at most `most` bytes: a few kilobytes of gzip may hold gigabytes."""
    if encoding.strip().lower() in ("", "identity"):
        yield from raw
        return
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise malformed(f"the reply is encoded as {encoding!r:.40}, which was not asked for")
    decoder = zlib.decompressobj(wbits=31)
    try:
        for piece in raw:
            while piece and not decoder.eof:
                yield decoder.decompress(piece, most)
                piece = decoder.unconsumed_tail
    except zlib.error:
        raise malformed("the reply is not the gzip it says it is") from None
    if not decoder.eof:
        raise ModelError(ErrorKind.CONNECTION, "the reply ended before its gzip did")


def _error_body(body: bytes) -> object:
    if len(body) <= _MOST_ERROR_BYTES:
        try:
            return read_json(body)
        except ModelError:
            pass
    return body[:_MOST_ERROR_BYTES].decode("utf-8", "replace")
