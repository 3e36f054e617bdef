"""`Server`: a chat model on loopback, with the HTTP under it; `serve` starts one."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote

from agentsys.base.option_checks import require_loopback
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys.models.serving.exchange import Exchange
from agentsys.models.serving.faults import (
    Delivery,
    FaultKind,
    FaultPlan,
    Faults,
    Response,
    json_response,
    problem_response,
)
from agentsys.models.serving.served_openai import OPENAI, write_model_list
from agentsys.models.serving.served_responses import RESPONSES
from agentsys.models.serving.served_vendors import ANTHROPIC, GEMINI, GEMINI_STREAMED
from agentsys.models.serving.wire_format import (
    AccessCheck,
    ModelLister,
    Problem,
    WireCaller,
    WireFormat,
    owner_mark,
)

_LOG = logging.getLogger(__name__)

MODELS_PATH = "/v1/models"
"""GET lists the models, in OpenAI's format; of several names, a path below it those that begin with it."""
MAX_BODY = 64 * 2**20
"""Bytes of a request body; more is refused with 413."""

_LINGER = struct.pack("ii", 1, 0)  # On, for 0 seconds: close() then sends a reset.


class ConnectionHandler(BaseHTTPRequestHandler):
    """Serves one connection until the client closes it."""

    server: HttpListener
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    _reasons: ClassVar[dict[int, str]] = {
        int(status): texts[0] for status, texts in BaseHTTPRequestHandler.responses.items()
    }

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the server counts, and a line per request would cost more than the request."""

    def do_GET(self) -> None:
        """The list of models; anything else is unknown."""
        self.server.count_request(self.path, self.headers, b"")
        if (problem := self.server.doorkeeper.find_refusal(self.path, self.headers)) is not None:
            return self._refuse(_format_of_error(self._path(), self.headers), problem.status, problem.message)
        if names := self.server.listed(self._path()):
            return self._send(json_response(write_model_list(names)))
        return self._refuse(
            _format_of_error(self._path(), self.headers), 404, _unknown_path_message("GET", self._path())
        )

    def do_POST(self) -> None:
        """One question to the model."""
        started = time.perf_counter()
        path = self._path()
        wire = _format_of_path(path)
        dialect = wire or _format_of_error(path, self.headers)
        if (problem := self.server.doorkeeper.find_refusal(self.path, self.headers)) is not None:
            return self._refuse_unread(dialect, problem.status, problem.message)
        raw = self._body(dialect)
        if raw is None:
            return None
        number = self.server.count_request(self.path, self.headers, raw)
        if wire is None:
            return self._refuse(
                _format_of_error(path, self.headers), 404, _unknown_path_message("POST", path)
            )
        role = self.headers.get(ROLE_HEADER) or "agent"
        caller = WireCaller(owner_mark(self.path, self.headers), _model_in(path))
        response = self.server.exchange.respond(wire, role, raw, number, caller)
        if response.from_model:
            self._wait(started + self.server.latency_s - time.perf_counter())
        return self._deliver(response)

    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _body(self, wire: WireFormat) -> bytes | None:
        """The request's body; None if it was refused, or if the client left before its end."""
        announced = self.headers.get("Content-Length")
        if announced is None or not announced.isascii() or not announced.isdigit():
            self._refuse_unread(wire, 411, "a POST needs a Content-Length")
            return None
        length = int(announced[:20])
        if length > MAX_BODY:
            self._refuse_unread(wire, 413, f"the body is larger than {MAX_BODY} bytes")
            return None
        raw = self.rfile.read(length)
        if len(raw) < length:
            self.close_connection = True
            return None
        return raw

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)

    def _deliver(self, response: Response) -> None:
        if response.delivery is Delivery.WHOLE:
            return self._send(response)
        self.close_connection = True
        if response.delivery is Delivery.CUT:
            head = self._head(response)
            return self._write(head + response.body[: len(response.body) // 2])
        if response.delivery is Delivery.HOLD:
            self.server.stopping.wait(self.server.hold_s)
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
        return None

    def _send(self, response: Response) -> None:
        self._write(self._head(response) + response.body)

    def _head(self, response: Response) -> bytes:
        lines = [
            f"HTTP/1.1 {response.status} {self._reasons.get(response.status, 'Overloaded')}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            *(f"{name}: {value}" for name, value in response.headers),
        ]
        if self.close_connection:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _write(self, data: bytes) -> None:
        # One write, so that one packet goes out; the client may have given up and gone meanwhile.
        try:
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def _refuse(self, wire: WireFormat, status: int, message: str) -> None:
        self._send(problem_response(wire, Problem(status, message)))

    def _refuse_unread(self, wire: WireFormat, status: int, message: str) -> None:
        """Refuse a body unread, then read on for a moment: closing at once would reset the reply away."""
        self.server.count_request(self.path, self.headers, b"")
        self.close_connection = True
        self._refuse(wire, status, message)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(0.2)
            give_up = time.perf_counter() + 2.0
            while time.perf_counter() < give_up and self.connection.recv(2**16):
                pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer broken HTTP and unknown methods as JSON too; the base class calls this."""
        self.close_connection = True
        status = 405 if code == 501 else code
        self._refuse(OPENAI, status, message or self._reasons.get(code, "bad request"))


def _unknown_path_message(method: str, path: str) -> str:
    return (
        f"no such path: {method} {path or '/'} "
        f"(the base URL ends in /v1 for OpenAI's SDK, and has no path for Anthropic's and Google's)"
    )


@dataclass(frozen=True)
class CapturedRequest:
    """One request as it arrived, for tests."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class HttpListener(ThreadingHTTPServer):
    """The listening socket, and what its connections share."""

    daemon_threads = True
    request_queue_size = 1024  # Hundreds of clients may connect in the same moment.

    def __init__(
        self,
        address: tuple[str, int],
        model: ChatModel,
        plan: FaultPlan,
        latency_s: float,
        doorkeeper: AccessCheck,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.exchange = Exchange(model, plan)
        self._model = model
        self.latency_s = latency_s
        self.doorkeeper = doorkeeper
        self.hold_s = plan.faults.hold_s
        self.stopping = threading.Event()
        self.captured: list[CapturedRequest] | None = None
        self.requests = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(address, ConnectionHandler)

    def listed(self, path: str) -> Sequence[str]:
        """Names of the models that a GET of this path lists; none where it is not one that does."""
        below = path.removeprefix(MODELS_PATH)
        if path != MODELS_PATH and not (below != path and below.startswith("/")):
            return ()
        if isinstance(self._model, ModelLister):
            return self._model.listed(unquote(below[1:]))
        return () if below else (self._model.name,)

    def server_bind(self) -> None:
        """Bind without the base class's reverse look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def count_request(self, path: str, headers: Message, body: bytes) -> int:
        """Count one request; returns its number, from 1."""
        with self._lock:
            self.requests += 1
            if self.captured is not None:
                lower = {name.lower(): value for name, value in headers.items()}
                self.captured.append(CapturedRequest(path, lower, body))
            return self.requests

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, so that stopping can end it."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close without the base class's orderly shutdown, which would turn a reset into a plain end."""
        with self._lock:
            self._open.discard(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of a line is no news; anything else is a bug."""
        if not isinstance(sys.exception(), OSError):
            _LOG.exception("a connection of the served model failed")

    def close_connections(self) -> None:
        """End every connection that is still open, so that no client waits for a server that is gone."""
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # Closed by its own thread or its client in this moment.


def _format_of_path(path: str) -> WireFormat | None:
    """The format whose model answers a POST to this path (without its query); None: there is none.

    Gemini's version and model are free: `/v1/models/m:generateContent`, `/v1beta/models/...`, and
    Vertex's longer `/v1beta1/projects/.../models/m:generateContent`.
    """
    if path == "/v1/chat/completions":
        return OPENAI
    if path == "/v1/responses":
        return RESPONSES
    if path == "/v1/messages":
        return ANTHROPIC
    if path.startswith("/v1") and "/models/" in path and path.endswith(":generateContent"):
        return GEMINI
    if path.startswith("/v1") and "/models/" in path and path.endswith(":streamGenerateContent"):
        return GEMINI_STREAMED
    return None


def _model_in(path: str) -> str:
    """The model that a path names (Gemini's do); `""` where it names none."""
    return unquote(path.rpartition("/models/")[2].rpartition(":")[0]) if ":" in path else ""


def _format_of_error(path: str, headers: Message) -> WireFormat:
    """The format in which a client that asks for an unknown path expects its error."""
    if "anthropic-version" in headers or path.startswith("/v1/messages"):
        return ANTHROPIC
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or ":" in path:
        return GEMINI
    return OPENAI


class Server:
    """A running server; a context manager that stops it.

    Made by `serve`. All counters may be read while requests are under way.
    """

    def __init__(self, listener: HttpListener, plan: FaultPlan) -> None:
        self._listener = listener
        self._plan = plan
        self._thread = threading.Thread(
            target=listener.serve_forever, kwargs={"poll_interval": 0.05}, name="served-model", daemon=True
        )
        self._thread.start()

    @property
    def base_url(self) -> str:
        """Scheme, host and port: the base URL for the Anthropic and Google SDKs."""
        host, port = str(self._listener.server_address[0]), self._listener.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def openai_base_url(self) -> str:
        """The base URL for OpenAI's SDK, which includes the version."""
        return f"{self.base_url}/v1"

    @property
    def requests(self) -> int:
        """HTTP requests received so far, those that failed included."""
        return self._listener.requests

    @property
    def faults(self) -> dict[FaultKind, int]:
        """Faults served so far, by kind."""
        return self._plan.counts()

    @property
    def captured(self) -> list[CapturedRequest]:
        """Every request so far, if the server was started with `capture=True`; else nothing."""
        return list(self._listener.captured or ())

    def stop(self) -> None:
        """Stop listening and end every connection. May be called twice."""
        self._listener.stopping.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._listener.close_connections()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def serve(
    model: ChatModel,
    *,
    faults: Faults | None = None,
    latency_s: float = 0.0,
    host: str = "127.0.0.1",
    port: int = 0,
    capture: bool = False,
    tokens: Sequence[str] = (),
) -> Server:
    """Start serving a model, from threads of its own.

    Args:
        model: The model that answers.
        faults: Shares and kinds of requests that fail; None: none do.
        latency_s: Seconds each answered request takes at least; requests wait side by side.
        host: A loopback address; any address where tokens are asked for.
        port: The port; 0 takes a free one.
        capture: Whether to keep every request in memory, for tests.
        tokens: Keys one of which a client must send; none: whoever is on this machine may ask.

    Raises:
        ConfigError: If the host is not loopback, or the port cannot be had.
    """
    plan = FaultPlan(faults or Faults())
    try:
        address = host if tokens else require_loopback(host, "a model is served")
        keeper = AccessCheck(tuple(tokens))
        listener = HttpListener((address, port), model, plan, latency_s, keeper)
    except (OSError, OverflowError) as slip:
        raise ConfigError(
            f"Cannot listen on {host}:{port} ({slip}); give another port, or 0 for any."
        ) from slip
    listener.captured = [] if capture else None
    return Server(listener, plan)
