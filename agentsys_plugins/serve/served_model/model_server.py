"""`Server`: a model application behind uvicorn, in a thread with an event loop of its own; `serve` starts one."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Self

import uvicorn
from starlette.types import Receive, Scope, Send

from agentsys.base.option_checks import require_loopback
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from agentsys_plugins.serve.served_model.model_application import ModelApplication, PlainEndpoint
from agentsys_plugins.serve.served_model.wire_format import ServedEndpoint

HEAD_S = 10.0
"""Seconds within which a request's head must be there."""
_IDLE_CONNECTION_S = 75


class _Listener(uvicorn.Server):
    """uvicorn's server, which breaks connections off where a head does not come to its end, or when it ends."""

    _unread_since: Mapping[Any, float] = MappingProxyType({})

    async def on_tick(self, counter: int) -> bool:
        connections: set[Any] = {*self.server_state.connections}
        now, before = time.monotonic(), self._unread_since
        # uvicorn sets a timer of its own where a connection rests between two requests.
        self._unread_since = {
            one: before.get(one, now)
            for one in connections
            if one.timeout_keep_alive_task is None and (one.cycle is None or one.cycle.response_complete)
        }
        for one, since in self._unread_since.items():
            if now - since > HEAD_S:
                one.transport.abort()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)


class CountingApplication(Protocol):
    """An application that counts what it is asked."""

    requests: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


class Server:
    """A running server; a context manager that stops it."""

    def __init__(self, application: CountingApplication, host: str, port: int) -> None:
        self._application = application
        with contextlib.suppress(ValueError, OSError):  # The usual 1,024 connections are soon taken.
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        config = uvicorn.Config(
            application,
            host,
            port,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_IDLE_CONNECTION_S,
            timeout_graceful_shutdown=0,
        )
        self.listener = _Listener(config)
        self._thread = threading.Thread(target=self._run, name="served-model", daemon=True)
        self._thread.start()
        while not self.listener.started:
            if not self._thread.is_alive():
                why = "there is no such address here, or the port is taken"
                raise ConfigError(f"Cannot listen on {host}:{port}: {why}; give another, or port 0 for any.")
            time.sleep(0.005)
        name, port = self.listener.servers[0].sockets[0].getsockname()[:2]
        self.base_url = f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
        """Scheme, host and port."""

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):  # uvicorn's, where it cannot listen.
            self.listener.run()

    @property
    def openai_base_url(self) -> str:
        """The base URL for OpenAI's SDK, which includes the version."""
        return f"{self.base_url}/v1"

    @property
    def requests(self) -> int:
        """HTTP requests received so far, those that failed included."""
        return self._application.requests

    def stop(self) -> None:
        """Stop listening and end every connection. May be called twice."""
        self.listener.should_exit = True
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def serve(
    model: ChatModel | ServedEndpoint,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Sequence[str] = (),
) -> Server:
    """Start serving, from threads of its own.

    Args:
        model: The model that answers, or an endpoint.
        host: A loopback address; any address where tokens are asked for.
        port: The port; 0 takes a free one. ConfigError if it cannot be had.
        tokens: Keys one of which a client must send; none: whoever is on this machine may ask.
    """
    endpoint = PlainEndpoint(model) if isinstance(model, ChatModel) else model
    address = host if tokens else require_loopback(host)
    return Server(ModelApplication(endpoint, tokens), address, port)
