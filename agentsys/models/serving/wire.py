"""`WireFormat`: the border between a vendor's JSON and our types.

Requests are read as plain JSON values, not as pydantic models: a served model must cost far less
than a millisecond per request, and must accept what an SDK's next release adds. Whatever cannot
be understood raises `WireError`, which the client sees as a 400 in its vendor's own format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentsys.models.chat import ChatRequest, ToolSpec, Usage

Json = dict[str, Any]


_LONGEST_CHOICE = 60
MAX_KEPT_TOOLS = 4096
"""Tools each format remembers: every request brings them all again, and equal ones should be one object,
so that whoever caches by a schema's identity finds it."""


class WireError(Exception):
    """A request that the format does not allow; the message goes to the client."""


@dataclass(frozen=True)
class WireRequest(ChatRequest):
    """A request as a client sent it, with what only a model that keeps conversations has a use for."""

    forced: str = ""
    """The client's choice of tools where that is neither `auto` nor `none`, in its own words."""
    one_call: bool = False
    """Whether the client wants one tool call in a reply at most."""
    goes_on_from: str = ""
    """Id of the reply that it goes on from, where it does not bring what was said before."""
    nameless_results: bool = False
    """Whether tool output stands in it as words of the user: of a protocol in which calls are text."""


@dataclass(frozen=True)
class WireCall:
    """One tool call on its way out."""

    id: str
    """The call's id, unique in the conversation."""
    name: str
    """The tool's name."""
    arguments: Mapping[str, Any] | str
    """The arguments object; a string is text that is *not* a JSON object (a fault)."""


@dataclass(frozen=True)
class Answer:
    """A model's reply, ready to be written in any format."""

    number: int
    """The request's number on this server, from 1."""
    model: str
    """The id of the model that really answered, whatever name the client asked for."""
    text: str | None
    """The reply's text; None where it has none."""
    calls: tuple[WireCall, ...]
    """The tool calls, in order."""
    usage: Usage
    """Tokens, reported or estimated."""
    trace: str = ""
    """Id of the stored conversation that the reply belongs to; empty where there is none."""
    reply_id: str = ""
    """Id that a client may go on from; empty where the server keeps no conversation."""


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


@dataclass(frozen=True)
class WireFormat:
    """One vendor's format as four functions."""

    name: str
    """`openai`, `openai-responses`, `anthropic` or `gemini`."""
    read: Callable[[Json, str], ChatRequest]
    """(body, role) -> request. Raises WireError, or TypeError and its like on misshapen JSON."""
    write: Callable[[Answer], Json]
    """Answer -> body of the 200 reply."""
    error: Callable[[Problem], Json]
    """Problem -> body of the error reply."""
    context_overflow: str
    """What the vendor says when a request does not fit into the model's context."""
    stream: Callable[[Json], bytes] | None = None
    """Body of the 200 reply -> the same as server-sent events; None where streaming is not offered."""
    always_streams: bool = False
    """Whether the path alone asks for a stream."""


def optional_number(body: Mapping[str, Any], *keys: str) -> float | None:
    """The first of these keys that holds a value, as a number.

    Raises:
        WireError: If it holds something else.
    """
    for key in keys:
        value = body.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise WireError(f"'{key}' must be a number")
            return value
    return None


def optional_count(body: Mapping[str, Any], *keys: str) -> int | None:
    """Read a whole number, as `optional_number` reads any."""
    value = optional_number(body, *keys)
    if value is None:
        return None
    if value != int(value) or value < 1:
        raise WireError(f"'{keys[0]}' must be a whole number above 0")
    return int(value)


def read_tool_choice(given: object, free: object = None) -> tuple[str, str]:
    """A choice of tools as (`auto` or `none`, what was demanded beyond these: empty for nothing).

    Args:
        given: The choice, as the format writes it.
        free: Its form for "the model decides"; besides `auto` and an absent choice.
    """
    if given == "none":
        return "none", ""
    known = given is None or given in ("auto", free)
    return "auto", "" if known else str(given)[:_LONGEST_CHOICE]


def read_object_list(value: object, what: str) -> list[Json]:
    """A list of JSON objects; an absent one is empty.

    Raises:
        WireError: If it is anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise WireError(f"'{what}' must be a list of objects")
    return value


def require_function_tool(kind: object, *known: str | None) -> None:
    """Refuse a tool that a vendor runs, or whose schema only the vendor's models know.

    Args:
        kind: Its type, as the format names it.
        known: Types of tools that are described by a schema and run by the client.

    Raises:
        WireError: If it is another type.
    """
    if kind not in known:
        raise WireError(f"a tool of type {str(kind)[:60]!r}: only functions with a schema are taken here")


def read_tool_spec(name: object, description: object, parameters: object) -> ToolSpec:
    """One tool on offer; an absent description is empty, absent parameters are none.

    Raises:
        WireError: If a part has the wrong type.
    """
    if not isinstance(name, str) or not name:
        raise WireError("a tool needs a name")
    if not isinstance(description or "", str) or not isinstance(parameters or {}, dict):
        raise WireError(f"tool {name!r}: its description must be a string and its parameters an object")
    return ToolSpec(name, str(description or ""), dict(parameters) if isinstance(parameters, dict) else {})
