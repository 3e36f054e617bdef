"""`Faults`: how a served model fails on purpose, repeatably, and `Response`: what one request gets back."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

import orjson

from agentsys.errors import ConfigError, find_enum_member
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.serving.wire_format import Json, Problem, WireFormat


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
    UNKNOWN_TOOL = "unknown_tool"
    """A tool call that names no tool on offer; only where the reply calls tools."""
    CONTEXT_LENGTH = "context_length"
    """The request is refused as too long for the model."""


_NEEDS_CALLS = {FaultKind.BAD_ARGUMENTS, FaultKind.UNKNOWN_TOOL}
_NOT_TRANSIENT = {FaultKind.UNKNOWN_TOOL, FaultKind.CONTEXT_LENGTH}

TRANSIENT = tuple(kind for kind in FaultKind if kind not in _NOT_TRANSIENT)
"""What a client survives by asking again: the kinds drawn from when none are listed. An unknown tool is
a model's behaviour, which a client must pass on, and too long a request stays too long."""

_MAX_REMEMBERED = 200_000  # Contents whose history is kept, to bound memory: about 50 MB.


def fault_kinds(names: Iterable[str]) -> tuple[FaultKind, ...]:
    """Kinds by name.

    Raises:
        ConfigError: If a name is not a kind.
    """
    return tuple(find_enum_member("fault", name.strip(), FaultKind) for name in names)


@dataclass(frozen=True)
class Faults:
    """The share and kinds of requests that fail.

    Raises:
        ConfigError: If a number is out of its range.
    """

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", fault_kinds(self.kinds))
        if not 0.0 <= self.rate <= 1.0:
            raise ConfigError(f"The fault rate is {self.rate}; give a probability from 0 to 1.")
        if self.max_in_a_row < 1 or self.retry_after_s < 0 or self.hold_s < 0:
            raise ConfigError(
                "max_in_a_row must be at least 1; retry_after_s and hold_s may not be negative."
            )
        if self.rate > 0 and not self.kinds:
            raise ConfigError("A fault rate above 0 needs at least one kind of fault.")


@dataclass(frozen=True)
class Fault:
    """One request's fate."""

    kind: FaultKind
    without_calls: FaultKind | None
    """What happens instead where the reply calls no tool and `kind` needs one; None: nothing."""


class FaultPlan:
    """Draws each request's fate: a hash of seed, the request's content and how often it was seen.

    So neither the order nor the timing of other requests plays a part, and a run against a
    freshly started server repeats exactly.
    """

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._kinds = fault_kinds(faults.kinds)
        self._lock = threading.Lock()
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._served: Counter[FaultKind] = Counter()

    def draw(self, content: bytes) -> Fault | None:
        """The fate of one more request of this content (a digest); None: it is answered."""
        if self.faults.rate == 0.0:
            return None
        with self._lock:
            times, in_a_row = self._seen.pop(content, (0, 0))
            fault = None if in_a_row >= self.faults.max_in_a_row else self._draw_kind(content, times)
            if len(self._seen) >= _MAX_REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._seen[content] = (times + 1, in_a_row + 1 if fault else 0)
        return fault

    def _draw_kind(self, content: bytes, times: int) -> Fault | None:
        salt = b"%d/%d/" % (self.faults.seed, times)
        digest = hashlib.blake2b(salt + content, digest_size=24).digest()
        chance, first, second = (int.from_bytes(digest[i : i + 8], "big") for i in (0, 8, 16))
        if chance >= self.faults.rate * 2**64:
            return None
        kind = self._kinds[first % len(self._kinds)]
        others = [other for other in self._kinds if other not in _NEEDS_CALLS]
        if kind not in _NEEDS_CALLS:
            return Fault(kind, kind)
        return Fault(kind, others[second % len(others)] if others else None)

    def count_served(self, kind: FaultKind) -> None:
        """Count a fault that was really served."""
        with self._lock:
            self._served[kind] += 1

    def counts(self) -> dict[FaultKind, int]:
        """Faults served so far, by kind."""
        with self._lock:
            return dict(self._served)


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
