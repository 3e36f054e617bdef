"""`serve`: the product's server with the wires of other vendors' SDKs, requests kept, and faults on purpose."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson
from responses_wire import RESPONSES
from starlette.requests import Request
from starlette.responses import Response
from vendor_wires import ANTHROPIC, GEMINI

from agentsys.models.chat import ChatModel, ErrorKind, ModelError, assistant
from agentsys_plugins.serve.served_model.model_application import (
    ModelApplication,
    PlainEndpoint,
    WireQuestion,
    build_refusal,
    build_response,
    complete_reply,
    describe_failure,
)
from agentsys_plugins.serve.served_model.model_server import Server
from agentsys_plugins.serve.served_model.served_openai import OPENAI
from agentsys_plugins.serve.served_model.wire_format import RequestRefused, ServedEndpoint


class FaultKind(StrEnum):
    """The ways to fail; the values are what a user types."""

    RATE_LIMIT = "429"
    """Too many requests, with Retry-After."""
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    OVERLOADED = "529"
    TIMEOUT = "timeout"
    """The request is held for `hold_s`, then the connection closes without a reply."""
    RESET = "reset"
    """The connection is reset instead of a reply."""
    TRUNCATED = "truncated"
    """The body ends, and the connection with it, before its announced length."""
    INVALID_JSON = "invalid_json"
    """Status 200 and a complete body that is not JSON."""
    BAD_ARGUMENTS = "bad_arguments"
    """A tool call whose arguments are not a JSON object; only where the reply calls tools."""
    EMPTY_REPLY = "empty_reply"
    """A well-formed reply with neither text nor tool calls."""
    CONTEXT_LENGTH = "context_length"
    """The request is refused as too long for the model."""


TRANSIENT = tuple(kind for kind in FaultKind if kind is not FaultKind.CONTEXT_LENGTH)
"""What a client survives by asking again: the kinds drawn from when none are listed."""


@dataclass(frozen=True)
class Faults:
    """The share and kinds of requests that fail."""

    rate: float = 0.0
    """Probability that a request fails, 0 to 1."""
    kinds: tuple[str, ...] = TRANSIENT
    """What is drawn from, with equal weights: values of `FaultKind`."""
    seed: int = 0
    max_in_a_row: int = 3
    """Most faults in a row for requests of the same content, so that a patient client always gets through."""
    retry_after_s: float = 0.05
    """What a 429 asks the client to wait, in seconds; small, as the wait serves nobody on loopback."""
    hold_s: float = 1.0
    """How long a time-out holds the request, in seconds; clients with more patience see it break off."""


class FaultPlan:
    """Draws each request's fate: a hash of seed, the request's content and how often it was seen.

    So neither the order nor the timing of other requests plays a part, and a run against a
    freshly started server repeats exactly.
    """

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._kinds = tuple(FaultKind(kind) for kind in faults.kinds)
        self._lock = threading.Lock()
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._served: Counter[FaultKind] = Counter()

    def draw(self, content: bytes) -> FaultKind | None:
        """The fate of one more request of this content (a digest); None: it is answered."""
        if self.faults.rate == 0.0:
            return None
        with self._lock:
            times, in_a_row = self._seen.pop(content, (0, 0))
            fault = None if in_a_row >= self.faults.max_in_a_row else self._draw_kind(content, times)
            self._seen[content] = (times + 1, in_a_row + 1 if fault else 0)
        return fault

    def _draw_kind(self, content: bytes, times: int) -> FaultKind | None:
        salt = b"%d/%d/" % (self.faults.seed, times)
        digest = hashlib.blake2b(salt + content, digest_size=16).digest()
        chance, drawn = (int.from_bytes(digest[i : i + 8], "big") for i in (0, 8))
        return self._kinds[drawn % len(self._kinds)] if chance < self.faults.rate * 2**64 else None

    def count_served(self, kind: FaultKind) -> None:
        """Count a fault that was really served."""
        with self._lock:
            self._served[kind] += 1

    def counts(self) -> dict[FaultKind, int]:
        """Faults served so far, by kind."""
        with self._lock:
            return dict(self._served)


_PROBLEMS = {
    FaultKind.RATE_LIMIT: (429, "Too many requests; wait before the next one."),
    FaultKind.SERVER_ERROR: (500, "Something went wrong on the server."),
    FaultKind.UNAVAILABLE: (503, "The service is not available for the moment."),
    FaultKind.OVERLOADED: (529, "Overloaded"),
}


def cut_arguments(body: Any) -> None:
    """Leave the closing brace of every call's arguments out of a reply, as text."""
    for name, value in body.items() if isinstance(body, dict) else enumerate(body):
        if name in ("arguments", "input", "args"):
            body[name] = (value if isinstance(value, str) else orjson.dumps(value).decode())[:-1]
        elif isinstance(value, dict | list):
            cut_arguments(value)


@dataclass(frozen=True)
class CapturedRequest:
    """One question as it arrived."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class FaultyApplication(ModelApplication):
    """The product's application, which keeps what it is asked, and fails on purpose."""

    def __init__(self, endpoint: ServedEndpoint, faults: Faults, **more: Any) -> None:
        super().__init__(endpoint, **more)
        self.plan = FaultPlan(faults)
        self.captured: list[CapturedRequest] = []
        self.server: Server | None = None

    async def respond(self, question: WireQuestion) -> Response:
        url = question.request.url
        path = url.path + (f"?{url.query}" if url.query else "")
        self.captured.append(CapturedRequest(path, dict(question.request.headers), question.raw))
        kind = self.plan.draw(question.digest.encode())
        if kind is None:
            return await super().respond(question)
        if (early := await self._fail_early(question, kind)) is not None:
            return early
        reply = await self.ask(question)
        if kind is not FaultKind.BAD_ARGUMENTS or reply.message["tool_calls"]:
            self.plan.count_served(kind)
        if kind is FaultKind.EMPTY_REPLY:
            reply = replace(reply, message=assistant(None))
        response = build_response(question, complete_reply(question, self._endpoint.name, reply))
        if kind is FaultKind.BAD_ARGUMENTS:
            body = orjson.loads(bytes(response.body))
            cut_arguments(body)
            return Response(orjson.dumps(body), media_type="application/json")
        if kind is FaultKind.INVALID_JSON:
            return Response(bytes(response.body).replace(b"{", b"{{", 1), media_type="application/json")
        if kind is FaultKind.TRUNCATED:  # Half of what is announced: uvicorn then breaks the connection off.
            half = bytes(response.body)[: len(response.body) // 2]
            return Response(half, headers=dict(response.headers))
        return response

    async def _fail_early(self, question: WireQuestion, kind: FaultKind) -> Response | None:
        """A fault that strikes before the model is asked; None for kinds that spoil its reply."""
        if kind in _PROBLEMS:
            wait = self.plan.faults.retry_after_s if kind is FaultKind.RATE_LIMIT else None
            refused = RequestRefused(*_PROBLEMS[kind], retry_after_s=wait)
        elif kind is FaultKind.CONTEXT_LENGTH:
            refused = describe_failure(question.wire, ModelError(ErrorKind.CONTEXT_LENGTH, ""))
        elif kind in (FaultKind.RESET, FaultKind.TIMEOUT):
            self.plan.count_served(kind)
            transport = self._find_transport(question.request)
            if kind is FaultKind.TIMEOUT:
                await asyncio.sleep(self.plan.faults.hold_s)
            else:
                linger = struct.pack("ii", 1, 0)  # On, for 0 seconds: the close then sends a reset.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()
            return Response(status_code=500)
        else:
            return None
        self.plan.count_served(kind)
        return build_refusal(question.wire, refused)

    def _find_transport(self, request: Request) -> asyncio.Transport:
        assert self.server is not None
        connections: set[Any] = {*self.server.listener.server_state.connections}
        found = (one.transport for one in connections if one.client == request.scope["client"])
        transport: asyncio.Transport = next(found)
        return transport


class TestServer(Server):
    """A running server, and what it was asked."""

    __test__ = False

    def __init__(self, application: FaultyApplication) -> None:
        super().__init__(application, "127.0.0.1", 0)
        self._faulty = application
        application.server = self

    @property
    def faults(self) -> dict[FaultKind, int]:
        """Faults served so far, by kind."""
        return self._faulty.plan.counts()

    @property
    def captured(self) -> list[CapturedRequest]:
        """Every question so far."""
        return list(self._faulty.captured)


WIRES = (OPENAI, RESPONSES, ANTHROPIC, GEMINI)


def serve(model: ChatModel, *, faults: Faults | None = None, wires: Sequence[Any] = WIRES) -> TestServer:
    """Serve a model in the formats of all vendors.

    Args:
        model: The model that answers.
        faults: Shares and kinds of requests that fail; None: none do.
        wires: The formats that are spoken.
    """
    return TestServer(FaultyApplication(PlainEndpoint(model), faults or Faults(), wires=wires))
