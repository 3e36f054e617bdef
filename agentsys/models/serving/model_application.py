"""`ModelApplication`: what answers chat requests, as a Starlette application. A request that waits holds no thread."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

import orjson
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

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
    WireFormat,
    WireRequest,
    owner_mark,
)

_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

TRACE_HEADER = "x-agentsys-trace"
"""Header with the id of the record that a reply belongs to, and that a client may send back."""
MAX_BODY = 32 * 2**20
"""Bytes of a request body; more is refused with 413."""
MAX_UNREAD = 2 * MAX_BODY
"""Bytes that one key's unfinished bodies may take together."""
BODY_S = 60.0
"""Seconds within which a request's body must be there."""
_LARGE_BODY = 2**18
"""Bytes of a body that is read in a thread, as it would hold up everybody else."""

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


async def run_in_thread(work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """What a function returns in a thread of its own, which a server that ends does not wait for."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work(*args, **more))
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            done.set_exception(error)

    done.set_running_or_notify_cancel()
    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)


class PlainEndpoint:
    """A chat model for whoever asks, each question in a thread."""

    def __init__(self, model: ChatModel) -> None:
        self.name, self._model = model.name, model

    async def answer(self, request: WireRequest, caller: WireCaller) -> ChatReply:
        """Ask the model."""
        return await run_in_thread(self._model.complete, request)

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
        answer = self._routes if problem is None else build_problem_response(OPENAI, problem)
        await answer(scope, receive, send)

    async def _refuse_path(self, request: Request, refused: Exception) -> Response:
        path = f"{request.method} {request.url.path}"
        why = f"no such path: {path} (the base URL ends in /v1, as OpenAI's SDK wants it)"
        return build_problem_response(OPENAI, Problem(getattr(refused, "status_code", 404), why))

    async def _list(self, request: Request) -> Response:
        names = await asyncio.to_thread(self._endpoint.listed, request.path_params.get("under", ""))
        if not names:
            return await self._refuse_path(request, HTTPException(404))
        return _json_response(write_model_list(names))

    async def _post(self, wire: WireFormat, request: Request) -> Response:
        """Answer one question; failures of the request and of the model are responses too."""
        started, number = time.perf_counter(), self.requests
        try:
            response = await self.respond(await self._read_question(wire, request, number))
        except RequestRefused as refused:
            return build_problem_response(wire, refused.problem, refused.trace)
        if self._latency_s and response.status_code == 200:
            await asyncio.sleep(max(0.0, started + self._latency_s - time.perf_counter()))
        return response

    async def _read_question(self, wire: WireFormat, request: Request, number: int) -> WireQuestion:
        owner = owner_mark(request.headers)
        raw = await self._read_body(request, owner)
        role = request.headers.get(ROLE_HEADER) or "agent"
        read = partial(read_request, wire, raw, role, request.headers.get(TRACE_HEADER) or "")
        asked, body = await asyncio.to_thread(read) if len(raw) > _LARGE_BODY else read()
        digest = hashlib.blake2b(f"{wire.name}\n{role}\n".encode() + raw, digest_size=16).hexdigest()
        caller = WireCaller(owner, str(body.get("model") or request.path_params.get("model", "")))
        return WireQuestion(wire, number, asked, raw, digest, caller, request, bool(body.get("stream")))

    async def _read_body(self, request: Request, owner: str) -> bytes:
        """The request's body.

        Raises:
            RequestRefused: If it is too large, comes too late, or others of its key take all the room.
        """
        too_large = Problem(413, f"the body is larger than {MAX_BODY} bytes")
        read, size = list[bytes](), 0
        try:
            if int(request.headers.get("content-length", "0")) > MAX_BODY:
                raise RequestRefused(too_large)
            async with asyncio.timeout(BODY_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._unread[owner] += len(chunk)
                    read.append(chunk)
                    if size > MAX_BODY:
                        raise RequestRefused(too_large)
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

    async def respond(self, question: WireQuestion) -> Response:
        """Answer a question that was read.

        Raises:
            RequestRefused: If it is not answered.
        """
        return self.build_response(question, await self.ask(question))

    async def ask(self, question: WireQuestion) -> ChatReply:
        """The endpoint's reply.

        Raises:
            RequestRefused: If there is none.
        """
        gone = asyncio.ensure_future(_cancel_when_gone(question.request, asyncio.current_task()))
        try:
            return await self._endpoint.answer(question.asked, question.caller)
        except ModelError as failed:
            raise RequestRefused(describe_failure(question.wire, failed)) from None
        except RequestRefused:
            raise
        except Exception:  # noqa: BLE001 - a bug in any model must become a 500 and not end the server
            _LOG.exception("the model behind the server failed")
            why = "The model behind this server failed; see its log."
            raise RequestRefused(Problem(500, why)) from None
        finally:
            gone.cancel()

    def build_response(
        self,
        question: WireQuestion,
        reply: ChatReply,
        change: Callable[[Answer], Answer] = lambda answer: answer,
    ) -> Response:
        """A reply as it goes out; `change` is for tests."""
        wire = question.wire
        whole = wire.write(change(build_answer(question, self._endpoint.name, reply)))
        headers = {TRACE_HEADER: reply.trace} if isinstance(reply, TracedReply) and reply.trace else {}
        if question.streams and wire.stream is not None:
            return Response(wire.stream(whole), media_type="text/event-stream", headers=headers)
        return _json_response(whole, headers=headers)


async def _cancel_when_gone(request: Request, work: asyncio.Task[Any] | None) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    if work is not None:
        work.cancel()


def read_request(wire: WireFormat, raw: bytes, role: str, trace: str) -> tuple[WireRequest, Json]:
    """A request's body as we read it, and as it is.

    Raises:
        RequestRefused: If it cannot be understood.
    """
    try:
        body = orjson.loads(raw)
        if not isinstance(body, dict):
            raise ValueError("the body must be a JSON object")
        asked = wire.read(body, role)
    except ValidationError as slip:
        first = slip.errors(include_url=False, include_input=False)[0]
        why = f"malformed request: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RequestRefused(Problem(400, why[:500])) from None
    except (ValueError, RecursionError) as slip:
        raise RequestRefused(Problem(400, f"malformed request: {slip}"[:500])) from None
    return replace(asked, size=len(raw), trace=trace or asked.trace), body


def build_answer(question: WireQuestion, name: str, reply: ChatReply) -> Answer:
    """A reply as it goes out.

    Args:
        question: What is answered. Calls without an id get theirs from its digest, so that ids repeat from
            run to run and do not depend on the order in which clients happen to ask.
        name: The model's name, used where the reply has no model id.
        reply: The model's reply.
    """
    message = reply.message
    calls = tuple(
        WireCall(call.id or f"call_{question.digest[:16]}_{index}", call.function, dict(call.args))
        for index, call in enumerate(message["tool_calls"] or ())
    )
    text = text_of(message) if message["content"] is not None else None
    # Of a conversation what was spent since its last reply: nothing, perhaps, and not to be estimated.
    is_counted = isinstance(reply, TracedReply)
    usage = reply.usage if is_counted else reported_or_estimated_usage(question.asked, reply)
    return Answer(question.number, reply.model_id or name, text, calls, usage)


def describe_failure(wire: WireFormat, failed: ModelError) -> Problem:
    """A model's failure in the vendor's way."""
    if failed.kind is ErrorKind.CONTEXT_LENGTH:
        return Problem(400, wire.context_overflow, code="context_length_exceeded")
    return Problem(_MODEL_STATUS.get(failed.kind, 500), str(failed), retry_after_s=failed.retry_after_s)


def build_problem_response(wire: WireFormat, problem: Problem, trace: str = "") -> Response:
    """An error in the format's own form."""
    headers = {TRACE_HEADER: trace} if trace else {}
    if problem.status in (408, 413):  # What is left of the body is not read.
        headers["connection"] = "close"
    if problem.retry_after_s is not None:
        headers["retry-after"] = f"{problem.retry_after_s:g}"
    return _json_response(wire.error(problem), problem.status, headers)


def _json_response(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body, default=str), status, headers, media_type="application/json")
