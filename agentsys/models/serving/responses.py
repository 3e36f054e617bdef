"""`Response`: what one request gets back, and how errors and transport faults look as one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import orjson

from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.serving.faults import FaultKind, Faults
from agentsys.models.serving.wire import Json, Problem, WireFormat

_FAULT_PROBLEMS = {
    FaultKind.RATE_LIMIT: (429, "Too many requests; wait before the next one."),
    FaultKind.SERVER_ERROR: (500, "Something went wrong on the server."),
    FaultKind.UNAVAILABLE: (503, "The service is not available for the moment."),
    FaultKind.OVERLOADED: (529, "Overloaded"),
}

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


TRACE_HEADER = "X-Agentsys-Trace"
"""Header with the id of the stored conversation that a reply belongs to."""


class Delivery(Enum):
    """The handling of a response's bytes."""

    WHOLE = "whole"
    CUT = "cut"
    """Half of the body is sent, then the connection closes."""
    RESET = "reset"
    """Nothing is sent; the connection is reset."""
    HOLD = "hold"
    """Nothing is sent for a while, then the connection closes."""


@dataclass(frozen=True)
class Response:
    """The answer to one request."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    """Beyond Content-Type and Content-Length."""
    content_type: str = "application/json"
    delivery: Delivery = Delivery.WHOLE
    from_model: bool = False
    """Whether a model's latency belongs before it; refusals come at once."""


_RESET = Response(0, b"", delivery=Delivery.RESET)
_HOLD = Response(0, b"", delivery=Delivery.HOLD)


def json_response(body: Json) -> Response:
    """A success."""
    return Response(200, orjson.dumps(body))


def problem_response(wire: WireFormat, problem: Problem) -> Response:
    """An error in the vendor's own format."""
    wait = problem.retry_after_s
    headers = () if wait is None else (("Retry-After", f"{wait:g}"),)
    return Response(problem.status, orjson.dumps(wire.error(problem)), headers)


def with_trace_header(response: Response, trace: str) -> Response:
    """The response with the id of the conversation that it belongs to, if it belongs to one."""
    return replace(response, headers=(*response.headers, (TRACE_HEADER, trace))) if trace else response


def overflow_response(wire: WireFormat) -> Response:
    """The vendor's way of saying that the request does not fit into the model's context."""
    return problem_response(wire, Problem(400, wire.context_overflow, code="context_length_exceeded"))


def fault_response(wire: WireFormat, kind: FaultKind, faults: Faults) -> Response | None:
    """A fault that strikes before the model is asked; None for kinds that spoil its reply."""
    if kind is FaultKind.RESET:
        return _RESET
    if kind is FaultKind.TIMEOUT:
        return _HOLD
    if kind is FaultKind.CONTEXT_LENGTH:
        return overflow_response(wire)
    if kind not in _FAULT_PROBLEMS:
        return None
    status, message = _FAULT_PROBLEMS[kind]
    wait = faults.retry_after_s if kind is FaultKind.RATE_LIMIT else None
    return problem_response(wire, Problem(status, message, retry_after_s=wait))


def model_error_response(wire: WireFormat, slip: ModelError) -> Response:
    """A failure of the model behind the server, as the vendor would report one of its own."""
    if slip.kind is ErrorKind.CONTEXT_LENGTH:
        return overflow_response(wire)
    status = _MODEL_STATUS.get(slip.kind, 500)
    return problem_response(wire, Problem(status, str(slip), retry_after_s=slip.retry_after_s))


def damage_response(response: Response, kind: FaultKind | None) -> Response:
    """A finished response with a transport fault in it; other kinds leave it as it is."""
    if kind is FaultKind.TRUNCATED:
        return replace(response, delivery=Delivery.CUT)
    if kind is FaultKind.INVALID_JSON:
        return replace(response, body=response.body.replace(b"{", b"{{", 1))
    return response
