"""Turns a model's reply into the `Answer` that goes out, intact or with a fault in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import orjson

from agentsys.models.chat import ChatReply, ChatRequest, text_of
from agentsys.models.estimated_usage import reported_or_estimated_usage
from agentsys.models.serving.callers import TracedReply
from agentsys.models.serving.faults import FaultKind
from agentsys.models.serving.wire import Answer, WireCall


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
