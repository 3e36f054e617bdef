"""`Exchange`: from the bytes of one request to what goes back, without any sockets."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ModelError, text_of
from agentsys.models.pricing import reported_or_estimated_usage
from agentsys.models.serving.faults import (
    FaultKind,
    FaultPlan,
    Response,
    damage_response,
    fault_response,
    model_error_response,
    problem_response,
    with_trace_header,
)
from agentsys.models.serving.wire_format import (
    UNKNOWN_CALLER,
    Answer,
    CallerAwareModel,
    Json,
    Problem,
    RequestRefused,
    TracedReply,
    WireCall,
    WireCaller,
    WireError,
    WireFormat,
    WireRequest,
)

UNNAMED_CALL_PREFIX = "unnamed_call_"
"""Beginning of the ids, followed by a number, of calls that a client sends back without the id they had."""


def text_blocks(content: object) -> list[MessageContentBlock] | None:
    """Wire content - null, a string, or a list of text parts - as content blocks.

    Parts that are the model's own thinking are left out: a served model has no use for them.

    Raises:
        WireError: If a part is not text.
    """
    if content is None:
        return None
    if isinstance(content, str):
        return [text_content_block_from_string(content)]
    if not isinstance(content, list):
        raise WireError("'content' must be null, a string or a list of parts")
    texts = [_part_text(part) for part in content if not _is_thinking(part)]
    return [text_content_block_from_string(text) for text in texts]


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise WireError("only text parts are understood here")
    return text


def _is_thinking(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")


class WireConversation:
    """Messages in order; tool results find the call they answer by its id.

    Args:
        elsewhere: Whether the calls may stand in a conversation that the server keeps.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self._elsewhere = elsewhere
        self.messages: list[ChatMessage] = []
        self._calls: dict[str, FunctionCall] = {}

    def system(self, content: object) -> None:
        """Add a system message, unless it is empty."""
        if blocks := text_blocks(content):
            self.messages.append({"role": "system", "content": blocks})

    def user(self, content: object) -> None:
        """Add a user message."""
        self.messages.append({"role": "user", "content": text_blocks(content) or []})

    def assistant(self, content: object, calls: list[FunctionCall]) -> None:
        """Add an assistant message; later tool results may answer its calls."""
        for call in calls:
            self._calls[call.id or ""] = call
        blocks = text_blocks(content) or None
        self.messages.append({"role": "assistant", "content": blocks, "tool_calls": calls or None})

    def result(self, call_id: object, content: object, *, is_error: bool = False) -> None:
        """Add a tool result. An error's text stands in `error`, as in AgentDojo's own messages.

        Raises:
            WireError: If no earlier assistant message made a call of this id.
        """
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        if call is None and self._elsewhere and isinstance(call_id, str):
            call = FunctionCall(function="", args={}, id=call_id)
        if call is None:
            raise WireError(f"no earlier tool call has the id {call_id!r} that a tool result names")
        blocks = text_blocks(content) or [text_content_block_from_string("")]
        error = "\n".join(block["content"] for block in blocks) if is_error else None
        if is_error:
            blocks = [text_content_block_from_string("")]
        self.messages.append(
            {"role": "tool", "content": blocks, "tool_call": call, "tool_call_id": call.id, "error": error}
        )


def function_call(call_id: object, name: object, arguments: Mapping[str, Any]) -> FunctionCall:
    """A tool call as an earlier assistant message made it.

    Raises:
        WireError: If id or name is not a string.
    """
    if not isinstance(name, str) or not isinstance(call_id, str):
        raise WireError("a tool call needs a name and an id, both strings")
    return FunctionCall(function=name, args=dict(arguments), id=call_id)


def build_answer(number: int, model: str, request: ChatRequest, reply: ChatReply, digest: str) -> Answer:
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
    calls = message["tool_calls"] or []
    return Answer(
        number=number,
        model=reply.model_id or model,
        text=text_of(message) if message["content"] is not None else None,
        calls=tuple(
            WireCall(call.id or f"call_{digest[:16]}_{index}", call.function, dict(call.args))
            for index, call in enumerate(calls)
        ),
        # Of a conversation what was spent since its last reply: nothing, perhaps, and not to be estimated.
        usage=reply.usage if isinstance(reply, TracedReply) else reported_or_estimated_usage(request, reply),
        trace=reply.trace if isinstance(reply, TracedReply) else "",
        reply_id=reply.reply_id if isinstance(reply, TracedReply) else "",
    )


def spoil_answer(whole: Answer, kind: FaultKind, tools: Iterable[str]) -> Answer:
    """The answer with a fault in its content; other kinds of fault leave it as it is."""
    if kind is FaultKind.EMPTY_REPLY:
        return replace(whole, text=None, calls=())
    if kind is FaultKind.BAD_ARGUMENTS:
        return replace(whole, calls=tuple(_with_bad_arguments(call) for call in whole.calls))
    if kind is FaultKind.UNKNOWN_TOOL:
        known = set(tools)
        return replace(whole, calls=tuple(_with_unknown_tool(call, known) for call in whole.calls))
    return whole


def _with_bad_arguments(call: WireCall) -> WireCall:
    return replace(call, arguments=orjson.dumps(call.arguments)[:-1].decode())  # Without its closing brace.


def _with_unknown_tool(call: WireCall, known: set[str]) -> WireCall:
    name = f"{call.name}_unknown"
    while name in known:
        name += "_"
    return replace(call, name=name)


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
