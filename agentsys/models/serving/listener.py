"""`Listener`: the listening socket of a served model, and what its connections share."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import ThreadingHTTPServer
from typing import Any

from agentsys.models.chat import ChatModel
from agentsys.models.serving.exchange import Exchange
from agentsys.models.serving.faults import FaultPlan
from agentsys.models.serving.handler import Handler

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Captured:
    """One request as it arrived, for tests."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Listener(ThreadingHTTPServer):
    """The listening socket, and what its connections share."""

    daemon_threads = True
    request_queue_size = 1024  # Hundreds of clients may connect in the same moment.

    def __init__(self, address: tuple[str, int], model: ChatModel, plan: FaultPlan, latency_s: float) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.exchange = Exchange(model, plan)
        self.model_name = model.name
        self.latency_s = latency_s
        self.hold_s = plan.faults.hold_s
        self.stopping = threading.Event()
        self.captured: list[Captured] | None = None
        self.requests = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without the base class's reverse look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def count(self, path: str, headers: Message, body: bytes) -> int:
        """Count one request; returns its number, from 1."""
        with self._lock:
            self.requests += 1
            if self.captured is not None:
                lower = {name.lower(): value for name, value in headers.items()}
                self.captured.append(Captured(path, lower, body))
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
