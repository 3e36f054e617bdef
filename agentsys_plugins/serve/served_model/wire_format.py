"""`WireFormat`: a client's JSON against our types; `RequestRefused`, and what stands behind a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agentsys.models.chat import ChatReply, ChatRequest

Json = dict[str, Any]


@dataclass(frozen=True)
class WireRequest(ChatRequest):
    """A request as a client sent it, with what only a model that keeps conversations has a use for."""

    model: str = ""
    """The name of the model that it asks for."""
    owner: str = ""
    """Mark of the key that it came with; the key itself is kept nowhere."""
    streams: bool = False
    """Whether the reply is asked for as a stream."""
    forced: str = ""
    """`required`, or the name of the one tool that the client wants called; empty: neither."""
    trace: str = ""
    """Id of the turn that its last call belongs to, from a client that gives calls ids of its own."""
    nameless_results: bool = False
    """Whether tool output stands in it as words of the user: of a protocol in which calls are text."""
    marks_untrusted: bool = False
    """Whether its client wants to be told which fields of a structured answer may be a tool's."""
    size: int = 0
    """Bytes of the request's body."""


@dataclass(eq=False)
class RequestRefused(Exception):
    """A request that is not answered: HTTP status, a sentence for the client, OpenAI's `code`, the turn's id."""

    status: int
    message: str
    code: str | None = None
    retry_after_s: float | None = None
    trace: str = ""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class WireFormat:
    """A format as functions. The product has OpenAI's; tests bring those of other vendors' SDKs."""

    name: str
    path: str
    """Path of its POST, as a regular expression."""
    read: Callable[[Json], WireRequest]
    """Body -> request. Raises ValueError."""
    write: Callable[[int, ChatReply], Json]
    """The request's number on its server, reply -> body of the 200 reply."""
    error: Callable[[RequestRefused], Json]
    """Refusal -> body of the error reply."""
    context_overflow: str
    """What the vendor says when a request does not fit into the model's context."""
    stream: Callable[[Json], bytes] | None = None
    """Body of the 200 reply -> the same as server-sent events; None where streaming is not offered."""


class ServedEndpoint(Protocol):
    """Endpoint behind a server."""

    @property
    def name(self) -> str:
        """Its name, whatever clients call it."""

    def book(self, owner: str, cpu_s: float) -> bool:
        """Note CPU seconds that were spent on a key's requests; whether it has any left for large ones."""

    async def answer(self, request: WireRequest) -> ChatReply:
        """Answer a request, or raise `RequestRefused` or `ModelError`. Cancelled if the client leaves before."""


@dataclass(frozen=True)
class TracedReply(ChatReply):
    """A reply that belongs to a stored conversation."""

    trace: str = ""
    """Id of the record, for the header `x-agentsys-trace`."""
    untrusted: tuple[str, ...] | None = None
    """JSON pointers of the texts in a structured answer that may be a tool's; None: nobody asked."""
