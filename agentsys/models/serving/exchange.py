"""`Exchange`: from the bytes of one request to what goes back, without any sockets."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace

import orjson

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import ModelError
from agentsys.models.serving.answers import build_answer, spoil_answer
from agentsys.models.serving.callers import UNKNOWN_CALLER, CallerAwareModel, RequestRefused, WireCaller
from agentsys.models.serving.faults import FaultKind, FaultPlan
from agentsys.models.serving.responses import (
    Response,
    damage_response,
    fault_response,
    model_error_response,
    problem_response,
    with_trace_header,
)
from agentsys.models.serving.wire import Answer, Json, Problem, WireError, WireFormat, WireRequest

_LOG = logging.getLogger(__name__)
_NOTHING_KEPT = Problem(
    400, "this server keeps no responses: leave 'previous_response_id' out and resend the conversation"
)


@dataclass(frozen=True)
class _ReadRequest:
    """One request, read."""

    wire: WireFormat
    number: int
    request: ChatRequest
    digest: str
    stream: bool
    caller: WireCaller


class Exchange:
    """Reads a request, asks the model, applies the fault that was drawn."""

    def __init__(self, model: ChatModel, plan: FaultPlan) -> None:
        self._model = model
        self._plan = plan

    def respond(
        self, wire: WireFormat, role: str, raw: bytes, number: int, caller: WireCaller = UNKNOWN_CALLER
    ) -> Response:
        """Answer one POST; failures of the request and of the model are responses too.

        Args:
            wire: The format the path belongs to.
            role: The asking role.
            raw: The request's body.
            number: The request's number on this server.
            caller: Who asks; a model's name in the body goes before the one given here.
        """
        try:
            body = _json_object(raw)
            named = replace(caller, model=str(body.get("model") or caller.model))
            digest, streams = _digest_request(wire, role, raw), _streams(wire, body)
            asked = _ReadRequest(wire, number, wire.read(body, role), digest, streams, named)
        except WireError as slip:
            return problem_response(wire, Problem(400, str(slip)))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as slip:
            # A field of the wrong shape somewhere inside; checking each beforehand would cost more
            # per request than all the rest.
            return problem_response(wire, Problem(400, f"malformed request: {type(slip).__name__}: {slip}"))
        return self._respond(asked)

    def _respond(self, asked: _ReadRequest) -> Response:
        fault = self._plan.draw(asked.digest.encode())
        kind = fault.kind if fault else None
        if kind and (early := self._early(asked, kind)):
            return early
        whole = self._answer(asked)
        if isinstance(whole, Response):
            return whole
        if fault and not whole.calls:
            kind = fault.without_calls
            if kind and (early := self._early(asked, kind)):
                return early
        return self._finished(asked, whole, kind)

    def _early(self, asked: _ReadRequest, kind: FaultKind) -> Response | None:
        response = fault_response(asked.wire, kind, self._plan.faults)
        if response:
            self._plan.count_served(kind)
        return response

    def _answer(self, asked: _ReadRequest) -> Answer | Response:
        try:
            model = self._model
            if isinstance(model, CallerAwareModel):
                model = model.for_caller(asked.caller)
            elif isinstance(asked.request, WireRequest) and asked.request.goes_on_from:
                return problem_response(asked.wire, _NOTHING_KEPT)
            reply: ChatReply = model.complete(asked.request)
        except RequestRefused as slip:
            return with_trace_header(problem_response(asked.wire, slip.problem), slip.trace)
        except ModelError as slip:
            return model_error_response(asked.wire, slip)
        except Exception:  # noqa: BLE001 - a bug in any model must become a 500 and not end the server
            _LOG.exception("the model behind the server failed")
            return problem_response(
                asked.wire, Problem(500, "The model behind this server failed; see its log.")
            )
        return build_answer(asked.number, self._model.name, asked.request, reply, asked.digest)

    def _finished(self, asked: _ReadRequest, whole: Answer, kind: FaultKind | None) -> Response:
        if kind:
            self._plan.count_served(kind)
            whole = spoil_answer(whole, kind, (tool.name for tool in asked.request.tools))
        body = asked.wire.write(whole)
        if asked.stream and asked.wire.stream:
            streamed = asked.wire.stream(body)
            found = Response(200, streamed, content_type="text/event-stream", from_model=True)
        else:
            found = Response(200, orjson.dumps(body, default=str), from_model=True)
        return damage_response(with_trace_header(found, whole.trace), kind)


def _json_object(raw: bytes) -> Json:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as slip:
        raise WireError(f"the body is not JSON: {slip}") from None
    if not isinstance(body, dict):
        raise WireError("the body must be a JSON object")
    return body


def _digest_request(wire: WireFormat, role: str, raw: bytes) -> str:
    content = hashlib.blake2b(f"{wire.name}\n{role}\n".encode(), digest_size=16)
    content.update(raw)
    return content.hexdigest()


def _streams(wire: WireFormat, body: Json) -> bool:
    if not (body.get("stream") or wire.always_streams):
        return False
    if wire.stream is None:
        raise WireError("this server does not stream this format; leave 'stream' out")
    return True
