"""`Server`: a model application behind uvicorn, in a thread with an event loop of its own; `serve` starts one."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentsys.base.option_checks import require_loopback
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from agentsys.models.serving.model_application import ModelApplication, PlainEndpoint
from agentsys.models.serving.wire_format import AccessCheck, ServedEndpoint

HEAD_S = 10.0
"""Seconds within which a request's head must be there."""
_IDLE_CONNECTION_S = 75


class _Connection(H11Protocol):
    """A connection of uvicorn's that breaks off where a request's head does not come to its end."""

    _head_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.app_state = {**self.app_state, "connection": self}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio sets this for sockets that name their protocol alone, and head and body are written apart.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_head()

    def _watch_head(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        # What is left of a body that was refused counts as the next request's head.
        is_open = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and is_answered
        is_unread = is_open and (
            self.timeout_keep_alive_task is None or self.conn.their_state is not h11.IDLE
        )
        if is_unread and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)
        elif not is_unread and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Listener(uvicorn.Server):
    """uvicorn's server, which ends the moment it is told to."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self._ended = ready, asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ready()
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    def end(self) -> None:
        """Stop; from any thread."""
        if self.loop is not None and not self.loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._ended.set)


class Server:
    """A running server; a context manager that stops it.

    Made by `serve`. All counters may be read while requests are under way.
    """

    def __init__(self, application: ModelApplication, host: str, port: int) -> None:
        self._application = application
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=2048)
        except (OSError, OverflowError) as slip:
            raise ConfigError(
                f"Cannot listen on {host}:{port} ({slip}); give another port, or 0 for any."
            ) from slip
        _raise_file_limit()
        self._address = listening.getsockname()
        config = uvicorn.Config(
            application,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_IDLE_CONNECTION_S,
        )
        ready = threading.Event()
        self._listener = _Listener(config, ready.set)
        serve_all = partial(self._listener.serve, sockets=[listening])
        self._thread = threading.Thread(
            target=lambda: asyncio.run(serve_all()), name="served-model", daemon=True
        )
        self._thread.start()
        ready.wait()

    @property
    def base_url(self) -> str:
        """Scheme, host and port."""
        host, port = self._address[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

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
        self._listener.end()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def serve(
    model: ChatModel | ServedEndpoint,
    *,
    latency_s: float = 0.0,
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Sequence[str] = (),
) -> Server:
    """Start serving, from threads of its own.

    Args:
        model: The model that answers, or an endpoint of several.
        latency_s: Seconds each answered request takes at least; requests wait side by side.
        host: A loopback address; any address where tokens are asked for.
        port: The port; 0 takes a free one.
        tokens: Keys one of which a client must send; none: whoever is on this machine may ask.

    Raises:
        ConfigError: If the host is not loopback, or the port cannot be had.
    """
    endpoint = PlainEndpoint(model) if isinstance(model, ChatModel) else model
    address = host if tokens else require_loopback(host, "a model is served")
    return Server(ModelApplication(endpoint, latency_s, AccessCheck(tuple(tokens))), address, port)


def _raise_file_limit() -> None:
    """Allow as many connections as this process may have: the usual 1,024 are soon taken."""
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
