"""Who asks a server: the key a request came with, as a mark, and the model's name that it asks for.

Most models answer everybody alike. One that keeps conversations must know whose they are; it is a
`KnowsCallers`, and may say by `TracedReply` and `Refused` what only a server has words for.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol, runtime_checkable
from urllib.parse import parse_qs, urlsplit

from agentsys.models.chat import ChatModel, ChatReply
from agentsys.models.serving.wire import Problem

_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_BEARER = "bearer "


class Headers(Protocol):
    """A request's headers; names are looked up without regard to case."""

    def get(self, name: str, /) -> str | None:
        """The value of one; None if it was not sent."""
        ...


@dataclass(frozen=True)
class WireCaller:
    """One client of a server."""

    owner: str = ""
    """Mark of the key that the request came with; the key itself is kept nowhere."""
    model: str = ""
    """The name of the model that the request asks for."""


UNKNOWN_CALLER = WireCaller()
"""A caller of whom nothing is known."""


@runtime_checkable
class CallerAwareModel(ChatModel, Protocol):
    """A model that answers each caller from that caller's own state."""

    def for_caller(self, caller: WireCaller) -> ChatModel:
        """The model as this caller sees it. Cheap; asked for at every request.

        Raises:
            Refused: If the caller asks for a model that there is not.
        """
        ...


@runtime_checkable
class ModelLister(Protocol):
    """What stands behind a server where it answers to several names."""

    def listed(self, under: str) -> Sequence[str]:
        """Names of models for GET /v1/models.

        Args:
            under: The path behind it: a name, or the beginning of names up to a `/`; `""` for those that a
                client is shown first.

        Returns:
            None of them where there is nothing under that path.
        """
        ...


@dataclass(frozen=True)
class TracedReply(ChatReply):
    """A reply that belongs to a stored conversation."""

    trace: str = ""
    """Id of the conversation, for the header `x-agentsys-trace`."""
    reply_id: str = ""
    """Id that the client may go on from, on a wire with a word for that."""


class RequestRefused(Exception):
    """A request that the model behind a server does not answer; the client sees the problem."""

    def __init__(self, problem: Problem, trace: str = "") -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.trace = trace


@dataclass(frozen=True)
class AccessCheck:
    """Decides who may ask.

    Without tokens everybody on this machine may, except web pages: a page that a user happens to look at can
    send requests to loopback, and says so by `Origin` or by another name of the host.
    """

    tokens: tuple[str, ...] = ()

    def find_refusal(self, path: str, headers: Headers) -> Problem | None:
        """The reason why a request may not be answered; None if it may."""
        if self.tokens:
            given = caller_key(path, headers).encode()
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
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name in ("", "localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


def owner_mark(path: str, headers: Headers) -> str:
    """The mark of the key that a request came with. Keys cannot be told from it."""
    return hashlib.sha256(b"agentsys caller\n" + caller_key(path, headers).encode()).hexdigest()


def caller_key(path: str, headers: Headers) -> str:
    """The key of a request, wherever its vendor's SDK puts it; `""` where there is none."""
    bearer = headers.get("Authorization") or ""
    if bearer.lower().startswith(_BEARER):
        return bearer[len(_BEARER) :].strip()
    named = next((found for name in _KEY_HEADERS if (found := headers.get(name))), None)
    return named or next(iter(parse_qs(path.partition("?")[2]).get("key", ())), "")


def split_tokens(text: str) -> Sequence[str]:
    """The tokens that an environment variable holds, between commas or blanks."""
    return text.replace(",", " ").split()
