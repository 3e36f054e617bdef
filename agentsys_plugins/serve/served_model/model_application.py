"""`ModelApplication`: what answers chat requests, as an ASGI application. A request that waits holds no thread."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import orjson
from agentdojo.types import ChatAssistantMessage
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import ChatModel, ChatReply, ErrorKind, ModelError
from agentsys.models.pricing import pick_usage
from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys_plugins.serve.served_model.json_check import find_excess
from agentsys_plugins.serve.served_model.served_openai import OPENAI
from agentsys_plugins.serve.served_model.wire_format import (
    Json,
    RequestRefused,
    ServedEndpoint,
    TracedReply,
    WireFormat,
    WireRequest,
)

_LOG = logging.getLogger(__name__)

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

USED_UP = "this key has used its share of this server's time"

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
    """One question, read: with its number on this server, from 1, and its body."""

    wire: WireFormat
    number: int
    request: Request
    raw: bytes
    asked: WireRequest

    @property
    def digest(self) -> str:
        """Hash of wire, role and body."""
        head = f"{self.wire.name}\n{self.asked.role}\n".encode()
        return hashlib.blake2b(head + self.raw, digest_size=16).hexdigest()


class PlainEndpoint:
    """A chat model for whoever asks, each question in a thread, which a server that ends does not wait for."""

    def __init__(self, model: ChatModel) -> None:
        self.name, self._model = model.name, model

    def book(self, owner: str, cpu_s: float) -> bool:
        """Nothing is booked: its keys have no shares."""
        return True

    async def answer(self, request: WireRequest) -> ChatReply:
        """Ask the model."""
        done: Future[ChatReply] = Future()
        done.set_running_or_notify_cancel()

        def run() -> None:
            try:
                done.set_result(self._model.complete(request))
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
                done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return await asyncio.wrap_future(done)


class ModelApplication:
    """The application behind a server: access, counting, reading, and the endpoint's answer.

    Clients send one of the tokens as their key; without tokens whoever is on this machine may ask.
    """

    def __init__(
        self,
        endpoint: ServedEndpoint,
        tokens: Sequence[str] = (),
        wires: Sequence[WireFormat] = (OPENAI,),
    ) -> None:
        self._endpoint, self._tokens, self._wires = endpoint, tokens, wires
        self.requests = 0
        self._unread: Counter[str] = Counter()
        """Bytes of unfinished bodies, by key."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request, as ASGI has it; failures of the request and of the model are responses too."""
        self.requests += 1
        request, wire, number = Request(scope, receive), OPENAI, self.requests
        try:
            check_access(request.headers, self._tokens)
            if (request.method, scope["path"]) == ("GET", "/v1/models"):
                about = {"id": self._endpoint.name, "object": "model", "created": 0, "owned_by": "agentsys"}
                response = _make_json_response({"object": "list", "data": [about]})
            else:
                wire = self._find_wire(request.method, scope["path"])
                response = await self.respond(await self._read_question(wire, request, number))
        except RequestRefused as refused:
            response = build_refusal(wire, refused)
        await response(scope, receive, send)

    def _find_wire(self, method: str, path: str) -> WireFormat:
        found = [wire for wire in self._wires if re.fullmatch(wire.path, path)]
        if method != "POST" or not found:
            why = f"{method} {path} (the base URL ends in /v1): served are /chat/completions and /models"
            raise RequestRefused(405 if found else 404, why)
        return found[0]

    async def _read_question(self, wire: WireFormat, request: Request, number: int) -> WireQuestion:
        # The mark of the key that it came with; keys cannot be told from it.
        owner = hashlib.sha256(b"agentsys caller\n" + read_caller_key(request.headers).encode()).hexdigest()
        raw = await self._read_body(request, owner)
        if len(raw) <= _LARGE_BODY:
            asked = self._read_booked(wire, raw, owner)
        elif self._endpoint.book(owner, 0.0):
            asked = await asyncio.to_thread(self._read_booked, wire, raw, owner)
        else:
            raise RequestRefused(429, USED_UP, retry_after_s=1.0)
        role = request.headers.get(ROLE_HEADER) or "agent"
        trace = request.headers.get(TRACE_HEADER) or asked.trace
        asked = replace(asked, role=role, owner=owner, trace=trace, size=len(raw))
        return WireQuestion(wire, number, request, raw, asked)

    def _read_booked(self, wire: WireFormat, raw: bytes, owner: str) -> WireRequest:
        """Read a body, in whichever thread this is, at the expense of its key."""
        began = time.thread_time()
        try:
            # Values are counted elsewhere first: whoever reads JSON stops all threads until it is done.
            if len(raw) > _LARGE_BODY and (wrong := find_excess(raw, owner)):
                raise RequestRefused(400, f"malformed request: {wrong}")
            return read_request(wire, raw)
        finally:
            self._endpoint.book(owner, time.thread_time() - began)

    async def _read_body(self, request: Request, owner: str) -> bytes:
        """The request's body, unless it is too large, comes too late, or others of its key take all the room."""
        too_large = f"the body is larger than {MAX_BODY} bytes"
        read, size = list[bytes](), 0
        try:
            if int(request.headers.get("content-length", "0")) > MAX_BODY:
                raise RequestRefused(413, too_large)
            async with asyncio.timeout(BODY_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._unread[owner] += len(chunk)
                    read.append(chunk)
                    if size > MAX_BODY:
                        raise RequestRefused(413, too_large)
                    if self._unread[owner] > MAX_UNREAD:
                        why = "other unfinished requests of this key take all its room"
                        raise RequestRefused(429, why, retry_after_s=1.0)
        except TimeoutError:
            raise RequestRefused(408, f"the body was not there after {BODY_S:g} s") from None
        except ClientDisconnect:
            raise RequestRefused(400, "the client left before the end of its request") from None
        finally:
            self._unread[owner] -= size
            if not self._unread[owner]:
                del self._unread[owner]
        return b"".join(read)

    async def respond(self, question: WireQuestion) -> Response:
        """Answer a question that was read."""
        reply = await self.ask(question)
        return build_response(question, complete_reply(question, self._endpoint.name, reply))

    async def ask(self, question: WireQuestion) -> ChatReply:
        """The endpoint's reply, or `RequestRefused` if there is none."""
        gone = asyncio.ensure_future(_cancel_when_gone(question.request, asyncio.current_task()))
        try:
            return await self._endpoint.answer(question.asked)
        except ModelError as failed:
            raise describe_failure(question.wire, failed) from None
        except RequestRefused:
            raise
        except Exception:  # noqa: BLE001 - a bug in any model must become a 500 and not end the server
            _LOG.exception("the model behind the server failed")
            raise RequestRefused(500, "The model behind this server failed; see its log.") from None
        finally:
            gone.cancel()


async def _cancel_when_gone(request: Request, work: asyncio.Task[Any] | None) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    if work is not None:
        work.cancel()


def check_access(headers: Headers, tokens: Sequence[str]) -> None:
    """Refuse whoever may not ask.

    Without tokens everybody on this machine may, except web pages: a page that a user happens to look at can
    send requests to loopback, and says so by `Origin` or by another name of the host.
    """
    if tokens:
        given = read_caller_key(headers).encode()
        # Every token is compared, so that the time taken does not say which one was nearly right.
        known = [hmac.compare_digest(given, token.encode()) for token in tokens]
        if not any(known):
            raise RequestRefused(401, "this server wants its token as the API key")
    elif headers.get("Origin") is not None:
        raise RequestRefused(403, "web pages may not ask this server unless it is given a token")
    elif not all(map(_is_loopback, headers.getlist("Host"))):
        raise RequestRefused(403, "this server is asked by an address of loopback, or given a token")


@lru_cache(maxsize=64)
def _is_loopback(host: str) -> bool:
    """True if the header `Host` names this machine: `NAME` or `NAME:PORT` and nothing else; an empty one does."""
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.]*))(?::[0-9]{0,5})?", host.lower())
    if match is None:
        return False
    name = match[1] or match[2]
    try:
        return name in ("", "localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


def read_caller_key(headers: Headers) -> str:
    """The key of a request: a bearer token, or as Azure's clients send it; `""` where there is none."""
    scheme, _, bearer = (headers.get("Authorization") or "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else headers.get("api-key") or ""


def read_request(wire: WireFormat, raw: bytes) -> WireRequest:
    """A request's body as we read it; refused (400) if it cannot be understood."""
    try:
        body = orjson.loads(raw)
        if not isinstance(body, dict):
            raise ValueError("the body must be a JSON object")
        return wire.read(body)
    except ValidationError as slip:
        first = slip.errors(include_url=False, include_input=False)[0]
        why = f"malformed request: {'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
    except (ValueError, RecursionError) as slip:
        why = f"malformed request: {slip}"
    raise RequestRefused(400, why[:500])


def complete_reply(question: WireQuestion, name: str, reply: ChatReply) -> ChatReply:
    """A reply as it goes out, with ids, usage and a model's id (else this name)."""
    # Ids from the question repeat from run to run, in whatever order clients happen to ask.
    calls = [
        call if call.id else call.model_copy(update={"id": f"call_{question.digest[:16]}_{index}"})
        for index, call in enumerate(reply.message["tool_calls"] or ())
    ]
    # Of a conversation what was spent since its last reply: nothing, perhaps, and not to be estimated.
    is_counted = isinstance(reply, TracedReply)
    usage = reply.usage if is_counted else pick_usage(question.asked, reply)
    message: ChatAssistantMessage = {**reply.message, "tool_calls": calls or None}
    return replace(reply, message=message, usage=usage, model_id=reply.model_id or name)


def build_response(question: WireQuestion, reply: ChatReply) -> Response:
    """A completed reply in the question's format, and its trace."""
    wire, whole = question.wire, question.wire.write(question.number, reply)
    headers = {TRACE_HEADER: reply.trace} if isinstance(reply, TracedReply) and reply.trace else {}
    if question.asked.streams and wire.stream is not None:
        return Response(wire.stream(whole), media_type="text/event-stream", headers=headers)
    return _make_json_response(whole, headers=headers)


def describe_failure(wire: WireFormat, failed: ModelError) -> RequestRefused:
    """A model's failure in the vendor's way."""
    if failed.kind is ErrorKind.CONTEXT_LENGTH:
        return RequestRefused(400, wire.context_overflow, code="context_length_exceeded")
    status = _MODEL_STATUS.get(failed.kind, 500)
    return RequestRefused(status, str(failed), retry_after_s=failed.retry_after_s)


def build_refusal(wire: WireFormat, refused: RequestRefused) -> Response:
    """An error in the format's own form."""
    headers = {TRACE_HEADER: refused.trace} if refused.trace else {}
    if refused.status in (408, 413):  # What is left of the body is not read.
        headers["connection"] = "close"
    if refused.retry_after_s is not None:
        headers["retry-after"] = f"{refused.retry_after_s:g}"
    return _make_json_response(wire.error(refused), refused.status, headers)


def _make_json_response(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json_bytes(body), status, headers, media_type="application/json")
