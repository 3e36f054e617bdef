"""The HTTP client under every vendor's SDK: an exchange ends in time, stays small, and goes nowhere else.

An SDK's own timeout is per read, so a server that sends a byte now and then holds a case for ever; a
compressed or endless body fills the memory; and a redirect takes the key along to another host. Here the
whole exchange (sending, headers, body) has one deadline, the decoded body a bound, and every answer above 299
is our error, before an SDK looks at it.

`httpx2` and `httpcore2` are the same libraries under other names; which of them an SDK wants a client of
differs between SDKs and releases, so both are written to by what they have in common.
"""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.request import getproxies

from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.providers.sdk_errors import make_http_error, make_network_error, redirect_error
from agentsys.models.providers.wire_parts import make_malformed_reply_error, parse_json

MAX_REPLY_BYTES = 64_000_000
"""Bytes of a decoded reply that are read by default; the longest real ones have one million."""

_MAX_ERROR_BYTES = 100_000
"""Longer bodies of failed requests are searched for known wordings no further than this, and not parsed."""

_PIECE_BYTES = 65_536
"""Bytes written between two looks at the clock."""

_KEEP_ALIVE_OPTIONS = [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5))
    if hasattr(socket, name)
]
"""As in Anthropic's SDK: a router between forgets a connection on which a model thinks for minutes."""


@dataclass(frozen=True)
class ExchangeLimits:
    """Limits of every exchange."""

    timeout_s: float
    """Seconds for a whole exchange."""
    reply_bytes: int
    """Most bytes of a reply's body, decoded."""
    key: str | None
    """The key in use, to be cut from error messages."""


def make_bounded_client(like: type[Any], limits: ExchangeLimits) -> Any:
    """A client of the library of class `like`, for an SDK to send with; it uses the environment's proxies."""
    names = {base.__module__.partition(".")[0] for base in like.__mro__}
    http = import_module("httpx2" if "httpx2" in names else "httpx")
    core = import_module(http.__name__.replace("httpx", "httpcore"))
    tls = http.create_ssl_context()
    mounts = {
        pattern: None if proxy is None else BoundedTransport(http, core, tls, limits, proxy)
        for pattern, proxy in _read_environment_proxies().items()
    }
    direct = BoundedTransport(http, core, tls, limits)
    return http.Client(transport=direct, mounts=mounts, timeout=limits.timeout_s, follow_redirects=False)


def _read_environment_proxies() -> dict[str, str | None]:
    """Patterns of addresses, as `httpx` reads them, with their proxy; None: none.

    A client that is given a transport does not look for them itself.
    """
    environment = getproxies()
    passed_over = [host.strip() for host in environment.get("no", "").split(",") if host.strip()]
    if "*" in passed_over:
        return {}
    by_scheme = {
        f"{scheme}://": environment[scheme] for scheme in ("http", "https", "all") if environment.get(scheme)
    }
    proxies: dict[str, str | None] = {
        pattern: address if "://" in address else f"http://{address}"
        for pattern, address in by_scheme.items()
    }
    return proxies | dict.fromkeys(map(_write_proxy_pattern, passed_over))


def _write_proxy_pattern(host: str) -> str:
    """The pattern of what an entry of `NO_PROXY` names: a domain with all below it, or an address."""
    if "://" in host:
        return host
    return f"all://[{host.strip('[]')}]" if host.count(":") > 1 else f"all://*{host}"


class BoundedTransport:
    """A transport of `httpx` over `httpcore`, whose streams know the deadline. For many threads.

    Each request under way has a pool to itself: `httpcore` looks through all connections of a pool, twice a
    request and under a lock: where 256 threads share one that holds them to a sixth of what the server gives.
    """

    def __init__(
        self, http: Any, core: Any, tls: ssl.SSLContext, limits: ExchangeLimits, proxy: str | None = None
    ) -> None:
        self._http, self._core, self._limits = http, core, limits
        address = None if proxy is None else http.Proxy(proxy)
        self._proxy = address and core.Proxy(str(address.url), auth=address.raw_auth)
        self._tls = tls
        self._idle_pools = deque[Any]()

    def handle_request(self, request: Any) -> Any:
        """Send a request and read the whole answer, which comes back as a plain 200.

        Raises:
            ModelError: If it is late, too large, or no success; SDKs pass it on as a cause.
        """
        request.headers["Accept-Encoding"] = "gzip"
        running = _DEADLINE.set(_Deadline(self._limits.timeout_s))
        try:
            with (
                self._borrow_pool() as pool,
                closing(pool.handle_request(self._build_core_request(request))) as answer,
            ):
                headers = self._http.Headers(answer.headers)
                body = self._read_body(answer.status, headers, answer.iter_stream())
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - an SDK, too, takes any for the network's
            raise make_network_error(error, self._limits.key) from None
        finally:
            _DEADLINE.reset(running)
        # With its own headers an SDK would decode the body once more, by whatever charset they name, and
        # not every SDK takes every status below 300 for a success. A router may know its clients by cookies.
        cookies = [("Set-Cookie", value) for value in headers.get_list("set-cookie")]
        return self._http.Response(
            200, headers=[("Content-Type", "application/json"), *cookies], content=body
        )

    def close(self) -> None:
        """Close all connections that serve no request."""
        with suppress(IndexError):
            while True:
                self._idle_pools.pop().close()

    @contextmanager
    def _borrow_pool(self) -> Iterator[Any]:
        """Lend the pool that was used last of those that are idle, or a new one."""
        try:
            pool = self._idle_pools.pop()
        except IndexError:
            pool = self._core.ConnectionPool(
                ssl_context=self._tls,
                proxy=self._proxy,
                keepalive_expiry=5.0,
                network_backend=_DeadlineBackend(self._core),
                socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *_KEEP_ALIVE_OPTIONS],
            )
        try:
            yield pool
        finally:
            self._idle_pools.append(pool)

    def _build_core_request(self, request: Any) -> Any:
        url = request.url
        address = self._core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        return self._core.Request(
            request.method,
            address,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )

    def _read_body(self, status: int, headers: Any, raw: Iterable[bytes]) -> bytes:
        if 300 <= status < 400:
            raise redirect_error(status, headers.get("location"), self._limits.key)
        body = b"".join(self._decode_body(headers.get("content-encoding", ""), raw))
        if status >= 400:
            raise make_http_error(status, _parse_error_body(body), headers, self._limits.key)
        if status < 200:
            raise make_malformed_reply_error(f"the server answered with HTTP {status}")
        return body

    def _decode_body(self, encoding: str, raw: Iterable[bytes]) -> Iterator[bytes]:
        left = self._limits.reply_bytes
        for piece in _decode_pieces(encoding, raw, left + 1):
            _DEADLINE.get().compute_seconds_left()
            left -= len(piece)
            if left < 0:
                raise make_malformed_reply_error(
                    f"the reply is longer than {self._limits.reply_bytes:,} bytes"
                )
            yield piece


class _Deadline:
    def __init__(self, timeout_s: float) -> None:
        self._timeout_s, self._at = timeout_s, time.monotonic() + timeout_s

    def compute_seconds_left(self) -> float:
        left = self._at - time.monotonic()
        if left <= 0:
            raise ModelError(ErrorKind.TIMEOUT, f"no whole reply within {self._timeout_s:g} s")
        return left


_DEADLINE: ContextVar[_Deadline] = ContextVar("deadline")
"""The deadline of the exchange that the current thread is in: a stream is not told whose request it sends."""


def _cap_timeout(timeout: float | None) -> float:
    """Seconds for one step: its own timeout, or what is left of the exchange if that is less."""
    left = _DEADLINE.get().compute_seconds_left()
    return left if timeout is None else min(left, timeout)


class _DeadlineBackend:
    def __init__(self, core: Any) -> None:
        self._core, self._backend = core, core.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> _DeadlineStream:
        stream = self._backend.connect_tcp(host, port, timeout=_cap_timeout(timeout), **options)
        return _DeadlineStream(self._core, stream)


class _DeadlineStream:
    """A network stream of `httpcore` that ends with the exchange it serves."""

    def __init__(self, core: Any, stream: Any) -> None:
        self._core, self._stream = core, stream
        self.close = stream.close
        self.get_extra_info = stream.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, timeout=_cap_timeout(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        whole = memoryview(buffer)
        for start in range(0, len(whole), _PIECE_BYTES):
            self._stream.write(whole[start : start + _PIECE_BYTES], timeout=_cap_timeout(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _DeadlineStream:
        try:
            stream = self._stream.start_tls(ssl_context, server_hostname, _cap_timeout(timeout))
        except self._core.ConnectError as error:
            why = error.__cause__
            if not isinstance(why, ssl.SSLCertVerificationError):
                raise
            raise ModelError(
                ErrorKind.CONNECTION,
                f"{server_hostname} shows a certificate that is not accepted:"
                f" {why.verify_message.rstrip('.')} (is base_url right? the variable SSL_CERT_FILE may name a"
                " file of the certificates to trust)",
            ) from None
        return _DeadlineStream(self._core, stream)


def _decode_pieces(encoding: str, raw: Iterable[bytes], most: int) -> Iterator[bytes]:
    """A body decoded, in pieces of at most `most` bytes: a few kilobytes of gzip may hold gigabytes."""
    if encoding.strip().lower() in ("", "identity"):
        yield from raw
        return
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise make_malformed_reply_error(f"the reply is encoded as {encoding!r:.40}, which was not asked for")
    decoder = zlib.decompressobj(wbits=31)
    try:
        for piece in raw:
            while piece and not decoder.eof:
                yield decoder.decompress(piece, most)
                piece = decoder.unconsumed_tail
    except zlib.error:
        raise make_malformed_reply_error("the reply is not the gzip it says it is") from None
    if not decoder.eof:
        raise ModelError(ErrorKind.CONNECTION, "the reply ended before its gzip did")


def _parse_error_body(body: bytes) -> object:
    if len(body) <= _MAX_ERROR_BYTES:
        try:
            return parse_json(body)
        except ModelError:
            pass
    return body[:_MAX_ERROR_BYTES].decode("utf-8", "replace")
