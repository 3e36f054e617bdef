"""A server that answers with raw bytes, at its own pace: whatever a mode says, HTTP or not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Answer = Iterable[bytes | float]
"""What is sent: bytes; a number is a pause in seconds."""

_LONGEST_S = 60.0
"""A stream without end is ended after this, should the client not have gone away."""


@dataclass
class Hostile:
    """A running server.

    Args:
        answer_to: The request (head and body) -> what is sent back; called once a request.
        keeps: Whether a connection may bring further requests.
        tls: With what it shows who it is; None: it speaks without TLS.
    """

    answer_to: Callable[[bytes], Answer]
    keeps: bool = False
    tls: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    """Every request as it arrived."""
    places: list[int] = field(default_factory=list)
    """The client's port of each request: the same for those of one connection."""
    ended: list[int] = field(default_factory=list)
    """The client's port of each connection that ended."""

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.base_url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Accept until closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _talk(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError), self._encrypted(accepted) as connection:
            connection.settimeout(_LONGEST_S)
            place = connection.getpeername()[1]
            try:
                while request := _read_request(connection):
                    self.requests.append(request)
                    self.places.append(place)
                    _send(connection, self.answer_to(request))
                    if not self.keeps:
                        return _shut(connection)
            finally:
                self.ended.append(place)

    def _encrypted(self, accepted: socket.socket) -> socket.socket:
        return accepted if self.tls is None else self.tls.wrap_socket(accepted, server_side=True)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    ]
    while len(body) < int(lengths[0] if lengths else 0):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _send(connection: socket.socket, answer: Answer) -> None:
    until = time.monotonic() + _LONGEST_S
    for piece in answer:
        if time.monotonic() > until:
            return
        if isinstance(piece, float):
            time.sleep(piece)
        else:
            connection.sendall(piece)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)  # or unread bytes would reset what was sent
        connection.settimeout(0.2)
        connection.recv(1)


@contextmanager
def hostile(
    answer_to: Callable[[bytes], Answer], *, keeps: bool = False, tls: ssl.SSLContext | None = None
) -> Iterator[Hostile]:
    """A server that listens on loopback while the block runs."""
    server = Hostile(answer_to, keeps, tls)
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield server
    finally:
        server.close()
