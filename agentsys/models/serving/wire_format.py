"""`WireFormat`: a client's JSON against our types, and who asks: a caller's key as a mark, the model's name."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from agentsys.models.chat import ChatReply, ChatRequest, Usage

Json = dict[str, Any]


class WireError(ValueError):
    """A request that the format does not allow; the message goes to the client."""


@dataclass(frozen=True)
class WireRequest(ChatRequest):
    """A request as a client sent it, with what only a model that keeps conversations has a use for."""

    forced: str = ""
    """`required`, or the name of the one tool that the client wants called; empty: neither."""
    one_call: bool = False
    """Whether the client wants one tool call in a reply at most."""
    nameless_results: bool = False
    """Whether tool output stands in it as words of the user: of a protocol in which calls are text."""
    trace: str = ""
    """Id of the turn that its calls belong to, from a client that does not keep the ids of calls."""
    size: int = 0
    """Bytes of the request's body."""


@dataclass(frozen=True)
class WireCall:
    """One tool call on its way out."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str
    """The arguments object; a string is text that is *not* a JSON object (a fault)."""


@dataclass(frozen=True)
class Answer:
    """A model's reply, ready to be written."""

    number: int
    """The request's number on this server, from 1."""
    model: str
    """The id of the model that really answered, whatever name the client asked for."""
    text: str | None
    calls: tuple[WireCall, ...]
    usage: Usage
    """Tokens, reported or estimated."""


@dataclass(frozen=True)
class Problem:
    """An error on its way out."""

    status: int
    """The HTTP status code."""
    message: str
    """One line for the client."""
    code: str | None = None
    """OpenAI's `code`, where it has one."""
    retry_after_s: float | None = None
    """Seconds the client is asked to wait."""


class RequestRefused(Exception):
    """A request that is not answered; the client sees the problem."""

    def __init__(self, problem: Problem, trace: str = "") -> None:
        super().__init__(problem.message)
        self.problem, self.trace = problem, trace


@dataclass(frozen=True)
class WireFormat:
    """A format as functions. The product has OpenAI's; tests bring those of other vendors' SDKs."""

    name: str
    path: str
    """Path of its POST, as Starlette writes paths."""
    read: Callable[[Json, str], WireRequest]
    """(body, role) -> request. Raises ValueError."""
    write: Callable[[Answer], Json]
    """Answer -> body of the 200 reply."""
    error: Callable[[Problem], Json]
    """Problem -> body of the error reply."""
    context_overflow: str
    """What the vendor says when a request does not fit into the model's context."""
    stream: Callable[[Json], bytes] | None = None
    """Body of the 200 reply -> the same as server-sent events; None where streaming is not offered."""


@dataclass(frozen=True)
class WireCaller:
    """One client of a server."""

    owner: str = ""
    """Mark of the key that the request came with; the key itself is kept nowhere."""
    model: str = ""
    """The name of the model that the request asks for."""


class ServedEndpoint(Protocol):
    """What stands behind a server: answers callers, each from that caller's own state."""

    @property
    def name(self) -> str:
        """Its name for clients that ask under another one."""
        ...

    async def answer(self, request: WireRequest, caller: WireCaller) -> ChatReply:
        """Answer a request. Cancelled if the client leaves before the answer.

        Raises:
            RequestRefused: If it is the client's mistake, or there is no room.
            ModelError: If a model gave no reply.
        """
        ...

    def listed(self, under: str) -> Sequence[str]:
        """Names of models for GET /v1/models, or of those below a path; none where there is nothing."""
        ...


@dataclass(frozen=True)
class TracedReply(ChatReply):
    """A reply that belongs to a stored conversation."""

    trace: str = ""
    """Id of the record, for the header `x-agentsys-trace`."""


@dataclass(frozen=True)
class AccessCheck:
    """Decides who may ask.

    Without tokens everybody on this machine may, except web pages: a page that a user happens to look at can
    send requests to loopback, and says so by `Origin` or by another name of the host.
    """

    tokens: tuple[str, ...] = ()

    def find_refusal(self, headers: Headers) -> Problem | None:
        """The reason why a request may not be answered; None if it may."""
        if self.tokens:
            given = caller_key(headers).encode()
            # Every token is compared, so that the time taken does not say which one was nearly right.
            known = [hmac.compare_digest(given, token.encode()) for token in self.tokens]
            return None if any(known) else Problem(401, "this server wants its token as the API key")
        if headers.get("Origin") is not None:
            return Problem(403, "web pages may not ask this server unless it is given a token")
        if not _is_loopback(headers.get("Host") or ""):
            return Problem(403, "this server is asked by an address of loopback, or given a token")
        return None


def _is_loopback(host: str) -> bool:
    """Whether the header `Host` names this machine; an absent one does."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in ("", "localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


def owner_mark(headers: Headers) -> str:
    """The mark of the key that a request came with. Keys cannot be told from it."""
    return hashlib.sha256(b"agentsys caller\n" + caller_key(headers).encode()).hexdigest()


def caller_key(headers: Headers) -> str:
    """The key of a request: a bearer token, or as Azure's clients send it; `""` where there is none."""
    scheme, _, bearer = (headers.get("Authorization") or "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else headers.get("api-key") or ""
