"""`Server`: what answers chat requests, behind OpenAI's chat completions; `serve` starts one.

Starlette and uvicorn, in a thread with an event loop of its own. A request holds no thread while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import h11
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentsys.base.option_checks import require_loopback
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatReply, ErrorKind, ModelError, text_of
from agentsys.models.pricing import reported_or_estimated_usage
from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys.models.serving.served_openai import OPENAI, write_model_list
from agentsys.models.serving.wire_format import (
    AccessCheck,
    Answer,
    Json,
    Problem,
    RequestRefused,
    ServedEndpoint,
    TracedReply,
    WireCall,
    WireCaller,
    WireError,
    WireFormat,
    WireRequest,
    owner_mark,
)

_LOG = logging.getLogger(__name__)

TRACE_HEADER = "x-agentsys-trace"
"""Header with the id of the record that a reply belongs to, and that a client may send back."""
MAX_BODY = 32 * 2**20
"""Bytes of a request body; more is refused with 413."""
MAX_UNREAD = 2 * MAX_BODY
"""Bytes that one key's unfinished bodies may take together."""
HEAD_S, BODY_S = 10.0, 60.0
"""Seconds within which a request's head, and its body, must be there."""
_IDLE_CONNECTION_S = 75
_LARGE_BODY = 2**18
"""Bytes of a body that is read in a thread, as it would hold up everybody else."""
_MODEL_THREADS = 256
"""Questions to a plain model side by side."""

_MODEL_STATUS = {
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.OVERLOADED: 529,
    ErrorKind.TIMEOUT: 503,
    ErrorKind.CONNECTION: 503,
    ErrorKind.CONTENT_REFUSED: 400,
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.REPLAY_DIVERGED: 400,
    ErrorKind.BAD_KEY: 401,
    ErrorKind.NO_CREDIT: 402,
    ErrorKind.UNKNOWN_MODEL: 404,
}


@dataclass(frozen=True)
class WireQuestion:
    """One question, read."""

    wire: WireFormat
    number: int
    """The request's number on this server, from 1."""
    asked: WireRequest
    raw: bytes
    """Its body."""
    digest: str
    """Hash of wire, role and body."""
    caller: WireCaller
    request: Request
    streams: bool
    """Whether the reply is asked for as a stream."""


class PlainEndpoint:
    """A chat model for whoever asks, each question in a thread."""

    def __init__(self, model: ChatModel) -> None:
        self.name, self._model = model.name, model
        self._threads = ThreadPoolExecutor(_MODEL_THREADS, thread_name_prefix="served-model")

    async def answer(self, request: WireRequest, caller: WireCaller) -> ChatReply:
        """Ask the model."""
        ask = self._model.complete
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask, request)

    def listed(self, under: str) -> Sequence[str]:
        """The model's name."""
        return () if under else (self.name,)


class ModelApplication:
    """The application behind a server: access, counting, reading, and the endpoint's answer."""

    def __init__(
        self,
        endpoint: ServedEndpoint,
        latency_s: float = 0.0,
        access: AccessCheck = AccessCheck(),  # noqa: B008 - frozen
        wires: Sequence[WireFormat] = (OPENAI,),
    ) -> None:
        self._endpoint, self._latency_s, self._access = endpoint, latency_s, access
        self.requests = 0
        self._unread: Counter[str] = Counter()
        """Bytes of unfinished bodies, by key."""
        routes = [Route(wire.path, partial(self._post, wire), methods=["POST"]) for wire in wires]
        routes += [Route(path, self._list) for path in ("/v1/models", "/v1/models/{under:path}")]
        handlers: Any = {HTTPException: self._refuse_path}
        self._routes = Starlette(routes=routes, exception_handlers=handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request, as ASGI has it."""
        self.requests += 1
        problem = self._access.find_refusal(Request(scope).headers)
        await (self._routes if problem is None else build_problem_response(OPENAI, problem))(
            scope, receive, send
        )

    async def _refuse_path(self, request: Request, refused: Exception) -> Response:
        status = getattr(refused, "status_code", 404)
        path = f"{request.method} {request.url.path}"
        why = f"no such path: {path} (the base URL ends in /v1, as OpenAI's SDK wants it)"
        return build_problem_response(OPENAI, Problem(status, why))

    async def _list(self, request: Request) -> Response:
        names = self._endpoint.listed(request.path_params.get("under", ""))
        if not names:
            return await self._refuse_path(request, HTTPException(404))
        return _json_response(write_model_list(names))

    async def _post(self, wire: WireFormat, request: Request) -> Response:
        """Answer one question; failures of the request and of the model are responses too."""
        started, number = time.perf_counter(), self.requests
        caller = WireCaller(owner_mark(request.headers), request.path_params.get("model", ""))
        try:
            raw = await self._read_body(request, caller.owner)
            role = request.headers.get(ROLE_HEADER) or "agent"
            read = partial(read_request, wire, raw, role, request.headers.get(TRACE_HEADER) or "")
            asked, body = await asyncio.to_thread(read) if len(raw) > _LARGE_BODY else read()
        except RequestRefused as refused:
            return build_problem_response(wire, refused.problem)
        digest = hashlib.blake2b(f"{wire.name}\n{role}\n".encode() + raw, digest_size=16).hexdigest()
        caller = replace(caller, model=str(body.get("model") or caller.model))
        response = await self.respond(
            WireQuestion(wire, number, asked, raw, digest, caller, request, bool(body.get("stream")))
        )
        if response.status_code == 200:
            await asyncio.sleep(max(0.0, started + self._latency_s - time.perf_counter()))
        return response

    async def respond(self, question: WireQuestion) -> Response:
        """Answer a question that was read."""
        reply = await self.ask(question)
        return reply if isinstance(reply, Response) else self.build_response(question, reply)

    def build_response(
        self,
        question: WireQuestion,
        reply: ChatReply,
        change: Callable[[Answer], Answer] = lambda answer: answer,
    ) -> Response:
        """A reply as it goes out; `change` is for tests."""
        wire = question.wire
        answer = change(
            build_answer(question.number, self._endpoint.name, question.asked, reply, question.digest)
        )
        whole = wire.write(answer)
        headers = {TRACE_HEADER: reply.trace} if isinstance(reply, TracedReply) and reply.trace else {}
        if question.streams and wire.stream is not None:
            return Response(wire.stream(whole), media_type="text/event-stream", headers=headers)
        return Response(orjson.dumps(whole, default=str), media_type="application/json", headers=headers)

    async def _read_body(self, request: Request, owner: str) -> bytes:
        """The request's body.

        Raises:
            RequestRefused: If it is too large, comes too late, or others of its key take all the room.
        """
        announced = request.headers.get("content-length", "0")
        read, size = list[bytes](), 0
        try:
            if int(announced) > MAX_BODY:
                raise RequestRefused(Problem(413, f"the body is larger than {MAX_BODY} bytes"))
            async with asyncio.timeout(BODY_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._unread[owner] += len(chunk)
                    read.append(chunk)
                    if size > MAX_BODY:
                        raise RequestRefused(Problem(413, f"the body is larger than {MAX_BODY} bytes"))
                    if self._unread[owner] > MAX_UNREAD:
                        why = "other unfinished requests of this key take all its room"
                        raise RequestRefused(Problem(429, why, retry_after_s=1.0))
        except TimeoutError:
            raise RequestRefused(Problem(408, f"the body was not there after {BODY_S:g} s")) from None
        except ClientDisconnect:
            raise RequestRefused(Problem(400, "the client left before the end of its request")) from None
        finally:
            self._unread[owner] -= size
            if not self._unread[owner]:
                del self._unread[owner]
        return b"".join(read)

    async def ask(self, question: WireQuestion) -> ChatReply | Response:
        """The endpoint's reply, or what there is in its place."""
        wire = question.wire
        reply = asyncio.ensure_future(self._endpoint.answer(question.asked, question.caller))
        gone = asyncio.ensure_future(_wait_until_gone(question.request))
        try:
            await asyncio.wait({reply, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                reply.cancel()
            return await reply
        except RequestRefused as refused:
            return build_problem_response(wire, refused.problem, refused.trace)
        except ModelError as failed:
            if failed.kind is ErrorKind.CONTEXT_LENGTH:
                return build_problem_response(wire, build_overflow_problem(wire))
            status = _MODEL_STATUS.get(failed.kind, 500)
            return build_problem_response(
                wire, Problem(status, str(failed), retry_after_s=failed.retry_after_s)
            )
        except asyncio.CancelledError:
            if not gone.done():
                raise
            return Response(status_code=400)  # Nobody reads it.
        except Exception:  # noqa: BLE001 - a bug in any model must become a 500 and not end the server
            _LOG.exception("the model behind the server failed")
            why = "The model behind this server failed; see its log."
            return build_problem_response(wire, Problem(500, why))
        finally:
            gone.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def read_request(wire: WireFormat, raw: bytes, role: str, trace: str) -> tuple[WireRequest, Json]:
    """A request's body as we read it, and as it is.

    Raises:
        RequestRefused: If it cannot be understood.
    """
    try:
        body = orjson.loads(raw)
        if not isinstance(body, dict):
            raise WireError("the body must be a JSON object")
        asked = wire.read(body, role)
    except orjson.JSONDecodeError as slip:
        raise RequestRefused(Problem(400, f"the body is not JSON: {slip}")) from None
    except WireError as slip:
        raise RequestRefused(Problem(400, str(slip))) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as slip:
        # A field of the wrong shape somewhere inside; checking each beforehand would cost more
        # per request than all the rest.
        why = f"malformed request: {type(slip).__name__}: {slip}"
        raise RequestRefused(Problem(400, why[:500])) from None
    return replace(asked, size=len(raw), trace=trace or asked.trace), body


def build_answer(number: int, model: str, request: WireRequest, reply: ChatReply, digest: str) -> Answer:
    """A reply as it goes out.

    Args:
        number: The request's number on this server.
        model: The model's name, used where the reply has no model id.
        request: The request that is answered.
        reply: The model's reply.
        digest: Hash of the request. Calls without an id get theirs from it, so that ids repeat
            from run to run and do not depend on the order in which clients happen to ask.
    """
    message = reply.message
    calls = tuple(
        WireCall(call.id or f"call_{digest[:16]}_{index}", call.function, dict(call.args))
        for index, call in enumerate(message["tool_calls"] or ())
    )
    text = text_of(message) if message["content"] is not None else None
    # Of a conversation what was spent since its last reply: nothing, perhaps, and not to be estimated.
    usage = reply.usage if isinstance(reply, TracedReply) else reported_or_estimated_usage(request, reply)
    return Answer(number, reply.model_id or model, text, calls, usage)


def _json_response(body: Json) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def build_problem_response(wire: WireFormat, problem: Problem, trace: str = "") -> Response:
    """An error in the format's own form."""
    headers = {TRACE_HEADER: trace} if trace else {}
    if problem.retry_after_s is not None:
        headers["retry-after"] = f"{problem.retry_after_s:g}"
    return Response(orjson.dumps(wire.error(problem)), problem.status, headers, media_type="application/json")


def build_overflow_problem(wire: WireFormat) -> Problem:
    """The vendor's way of saying that a request does not fit into the model's context."""
    return Problem(400, wire.context_overflow, code="context_length_exceeded")


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
