"""`ViewServer`: the live page on loopback, for this machine's browsers and nobody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from agentsys.errors import ConfigError
from agentsys.loopback import loopback
from agentsys.records.names_file import Names
from agentsys.view.answers import PageAnswer, PageAnswers
from agentsys.view.followed import FollowedRuns
from agentsys.view.measured import MeasuredRuns

_SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Sent with every response. What the page itself may do stands in the page, as in a report."""


class ViewHandler(BaseHTTPRequestHandler):
    """Answers one connection: GET, by the name of this machine, and nothing else."""

    server: ViewListener
    protocol_version = "HTTP/1.1"
    timeout = 60
    """Seconds that a connection may say nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the page asks all the time."""

    def parse_request(self) -> bool:
        """Refuse other methods, and other names: a page from elsewhere may have had its name point here."""
        if not super().parse_request():
            return False
        if self.server.ended.is_set():  # a connection from before: whoever asks shall see that nobody answers
            self.close_connection = True
            return False
        self.close_connection = self.close_connection or "Content-Length" in self.headers
        if self.command != "GET":
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, _plain("only GET is answered"), Allow="GET")
        elif self.headers.get_all("Host", []) not in [[name] for name in self.server.names]:
            self._send(HTTPStatus.FORBIDDEN, _plain(f"this server is called {self.server.names[0]}"))
        else:
            return True
        self.close_connection = True
        return False

    def do_GET(self) -> None:
        """The page, or something that it asks for."""
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query, errors="replace"))
        found = self.server.answers.answer(unquote(address.path), query)
        if self.server.ended.is_set():
            self.close_connection = True
        elif found is None:
            self._send(HTTPStatus.NOT_FOUND, _plain("there is nothing here"))
        else:
            self._send(HTTPStatus.OK, found)

    def _send(self, status: HTTPStatus, answer: PageAnswer, **headers: str) -> None:
        body = answer.text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in {**_SAFE, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):  # the page was closed
            self.close_connection = True


class ViewListener(ThreadingHTTPServer):
    """The listening socket."""

    daemon_threads = True
    ended: threading.Event
    """Whether the server was stopped."""
    answers: PageAnswers
    names: tuple[str, ...]
    """Values of the header `Host` under which it may be asked."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a connection that broke alone: browsers break them all the time."""


class ViewServer:
    """A running server; a context manager that stops it.

    Args:
        folders: The runs to follow.
        names: What the user says of other people's folders.
        host: A loopback address.
        port: The port; 0 takes a free one.

    Raises:
        ConfigError: If the host is not loopback, or the port cannot be had.
    """

    def __init__(
        self, folders: Sequence[Path], names: Names | None = None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        address = loopback(host, "the live view is served")
        try:
            self._listener = (_Listener6 if ":" in address else ViewListener)((address, port), ViewHandler)
        except (OSError, OverflowError) as slip:
            raise ConfigError(
                f"Cannot listen on {host}:{port} ({slip}); give another port, or 0 for any."
            ) from slip
        self.runs = FollowedRuns(folders, names or Names())
        self._measured = MeasuredRuns(self.runs)
        taken = self._listener.server_address[1]
        self._listener.ended = threading.Event()
        self._listener.answers = PageAnswers(self.runs, self._measured)
        self._listener.names = tuple(f"{name}:{taken}" for name in _names(address))
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, name="view", daemon=True
        )
        self.runs.start()
        self._measured.start()
        self._thread.start()

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{self._listener.names[0]}/"

    def stop(self) -> None:
        """Stop following and listening."""
        self._listener.ended.set()
        self._measured.stop()
        self.runs.stop()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def __enter__(self) -> ViewServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Listener6(ViewListener):
    address_family = socket.AF_INET6


def _names(address: str) -> tuple[str, ...]:
    return (f"[{address}]" if ":" in address else address, "localhost")


def _plain(text: str) -> PageAnswer:
    return PageAnswer("text/plain; charset=utf-8", f"{text}\n")
