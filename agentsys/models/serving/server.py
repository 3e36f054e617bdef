"""`Server`: a chat model on loopback; `serve` starts one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from agentsys.errors import ConfigError
from agentsys.loopback import require_loopback
from agentsys.models.chat import ChatModel
from agentsys.models.serving.callers import AccessCheck
from agentsys.models.serving.faults import FaultKind, FaultPlan, Faults
from agentsys.models.serving.http import CapturedRequest, HttpListener


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
