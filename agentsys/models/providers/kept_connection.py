"""`KeptConnection`: a connection of `httpcore` that serves one exchange after the other.

`httpcore` opens it (address, socket options, TLS) and leads its first exchange. Its parser is written in
Python and takes most of an exchange's CPU, so those behind the first are read by `httptools`, over the same
stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import httptools

_KEPT_S = 5.0
"""Seconds that a connection may be idle; as long as `httpx` keeps one."""

_MOST_HEAD_BYTES = 100 * 1024
"""Bytes that are read before the headers have ended; as many as `httpcore` reads."""

_PIECE = 65_536
"""Bytes that are read at a time."""

_READ_ALL_THE_SAME = {
    "lenient_headers": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}
"""Slips of servers that `httpcore` reads, too."""


class KeptConnection:
    """A connection to one origin, for one exchange at a time.

    Args:
        connection: One that a pool of `httpcore` made and nobody has used.
        to_origin: Whether it passes requests on as they are; a proxy's does not.
    """

    def __init__(self, connection: Any, *, to_origin: bool) -> None:
        self._connection, self._to_origin = connection, to_origin
        self._errors = import_module(type(connection).__module__.partition(".")[0])
        self._stream: Any = None
        self._idle_since_s = 0.0
        self.is_idle = False
        """Whether the last exchange came to its end, and another one may follow."""

    @contextmanager
    def answer(self, request: Any) -> Iterator[Any]:
        """What answers a request of `httpcore`: `status`, `headers`, `iter_stream()`.

        Raises:
            Exception: Of `httpcore`, as from a connection of its own.
        """
        self.is_idle = False
        if self._stream is not None:
            reply = self._asked(request)
            try:
                yield reply
            finally:
                self._idle_since_s, self.is_idle = time.monotonic(), reply.may_be_followed
            return
        response = self._connection.handle_request(request)
        try:
            yield response
        finally:
            response.close()
            self._idle_since_s, self.is_idle = time.monotonic(), self._connection.is_available()
            if self.is_idle and self._to_origin and response.extensions["http_version"] == b"HTTP/1.1":
                self._stream = response.extensions["network_stream"]

    def has_expired(self) -> bool:
        """Whether it was idle for too long, or the server has closed it."""
        if self._stream is None:
            expired: bool = self._connection.has_expired()
            return expired
        # All that was asked for has been read: what is there now is the server's end, or nothing it may say.
        late = time.monotonic() - self._idle_since_s > _KEPT_S
        return late or bool(self._stream.get_extra_info("is_readable"))

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def _asked(self, request: Any) -> _Reply:
        timeouts = request.extensions.get("timeout", {})
        with suppress(self._errors.WriteError):  # it may have answered before it had read all
            self._stream.write(self._written(request), timeouts.get("write"))
        reply = _Reply(self._stream, timeouts.get("read"), self._errors)
        reply.begin()
        return reply

    def _written(self, request: Any) -> bytes:
        """The request as it goes over the wire; to the byte what `httpcore` sends."""
        head = [b"%b %b HTTP/1.1" % (request.method, request.url.target)]
        head += [b"%b: %b" % header for header in request.headers]
        if any(mark in line for line in head for mark in (b"\r", b"\n", b"\0")):
            raise self._errors.LocalProtocolError("a header has more than one line")
        return b"\r\n".join((*head, b"", b"".join(request.stream)))


class _Reply:
    """A reply that is read as it arrives; the parser calls what begins with `on_`."""

    def __init__(self, stream: Any, timeout: float | None, errors: Any) -> None:
        self._stream, self._timeout, self._errors = stream, timeout, errors
        self._pieces: list[bytes] = []
        self._begun = self._whole = self._to_the_end = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.may_be_followed = False
        """Whether it is read to its end, nothing came behind it, and the server keeps the connection."""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_READ_ALL_THE_SAME)

    def begin(self) -> None:
        """Read until the headers have ended."""
        left = _MOST_HEAD_BYTES
        while not self._begun:
            left -= self._read()
            if left < 0 and not self._begun:
                raise self._errors.RemoteProtocolError(f"more than {_MOST_HEAD_BYTES:,} bytes of headers")

    def iter_stream(self) -> Iterator[bytes]:
        """The body, in pieces as they arrive."""
        while True:
            pieces, self._pieces = self._pieces, []
            yield from pieces
            if self._whole:
                return
            self._read()

    def _read(self) -> int:
        found = self._stream.read(_PIECE, timeout=self._timeout)
        if found:
            self._feed(found)
        elif self._to_the_end:
            self._whole = True
        elif self._begun:
            raise self._errors.RemoteProtocolError("the server closed the connection within its reply")
        else:
            raise self._errors.RemoteProtocolError("Server disconnected without sending a response.")
        return len(found)

    def _feed(self, found: bytes) -> None:
        try:
            self._parser.feed_data(found)
        except httptools.HttpParserUpgrade:
            self._whole, self.may_be_followed = True, False
        except httptools.HttpParserError as error:
            if not self._whole:  # what comes behind is no reply to anything
                raise self._errors.RemoteProtocolError(str(error)) from None

    def on_message_begin(self) -> None:
        """Another one may be behind an interim one (100, 103), and none behind a whole one."""
        self.may_be_followed = False
        if not self._whole:
            self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of the headers, or behind the body."""
        if not self._begun:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The status is known, and how the body ends."""
        if not self._begun:
            self.status = self._parser.get_status_code()
            self._begun = self.status >= 200 or self.status == 101
            ends = (b"content-length", b"transfer-encoding")
            self._to_the_end = self._begun and not any(name.lower() in ends for name, _ in self.headers)

    def on_body(self, piece: bytes) -> None:
        """A piece of the body."""
        if not self._whole:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The end of a reply whose end can be told."""
        if self._begun and not self._whole:
            kept = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
            self._whole, self.may_be_followed = True, kept
