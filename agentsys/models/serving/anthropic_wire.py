"""Anthropic's messages: requests in, replies, server-sent events and errors out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from agentsys.models.chat import JsonSchema, ToolSpec
from agentsys.models.serving import wire
from agentsys.models.serving.conversation import WireConversation, function_call
from agentsys.models.serving.wire import Answer, Json, Problem, WireError, WireFormat, WireRequest


def read_anthropic_request(body: Json, role: str) -> WireRequest:
    """A messages request as we read it."""
    if not body.get("messages"):
        raise WireError("'messages' must hold at least one message")
    max_tokens = wire.optional_count(body, "max_tokens")
    if max_tokens is None:
        raise WireError("max_tokens: Field required")
    conversation = WireConversation()
    conversation.system(body.get("system"))
    for message in wire.read_object_list(body["messages"], "messages"):
        _read_message(conversation, message)
    wanted = body.get("tool_choice") or {}
    choice, forced = wire.read_tool_choice(wanted.get("type"))
    return WireRequest(
        messages=conversation.messages,
        tools=tuple(_read_anthropic_tool(orjson.dumps(tool)) for tool in wire.read_object_list(body.get("tools"), "tools")),
        role=role,
        temperature=wire.optional_number(body, "temperature"),
        max_tokens=max_tokens,
        reply_schema=_anthropic_schema(body),
        tool_choice=choice,
        forced=forced,
        one_call=wanted.get("disable_parallel_tool_use") is True,
    )


def _read_message(conversation: WireConversation, message: Json) -> None:
    content = message.get("content")
    match message.get("role"):
        case "system":
            conversation.system(content)
        case "user":
            _read_user(conversation, content)
        case "assistant":
            _read_assistant(conversation, content)
        case other:
            raise WireError(f"unknown message role {other!r}")


def _read_user(conversation: WireConversation, content: object) -> None:
    """A user message may hold tool results, text, or both: neighbours of a kind become one message."""
    if not isinstance(content, list):
        return conversation.user(content)
    texts: list[Json] = []
    for block in wire.read_object_list(content, "content"):
        if block.get("type") != "tool_result":
            texts.append(block)
            continue
        if texts:
            conversation.user(texts)
            texts = []
        is_error = bool(block.get("is_error"))
        conversation.result(block.get("tool_use_id"), block.get("content"), is_error=is_error)
    if texts:
        conversation.user(texts)
    return None


def _read_assistant(conversation: WireConversation, content: object) -> None:
    if not isinstance(content, list):
        return conversation.assistant(content, [])
    blocks = wire.read_object_list(content, "content")
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    calls = [function_call(use.get("id"), use.get("name"), _input(use)) for use in uses]
    return conversation.assistant([block for block in blocks if block.get("type") != "tool_use"], calls)


def _input(use: Json) -> dict[str, Any]:
    arguments = use.get("input")
    if not isinstance(arguments, dict):
        raise WireError("tool_use.input: Input should be an object")
    return arguments


@lru_cache(maxsize=wire.MAX_KEPT_TOOLS)
def _read_anthropic_tool(raw: bytes) -> ToolSpec:
    tool = orjson.loads(raw)
    wire.require_function_tool(tool.get("type"), "custom", None)
    return wire.read_tool_spec(tool.get("name"), tool.get("description"), tool.get("input_schema"))


def _anthropic_schema(body: Json) -> JsonSchema | None:
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    schema: JsonSchema | None = wanted.get("schema")
    return schema


def write_anthropic_reply(answer: Answer) -> Json:
    """An assistant message; an empty reply has no content blocks."""
    content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in answer.calls
    ]
    usage = answer.usage
    return {
        "id": f"msg_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.prompt - usage.cached,  # Anthropic counts cached input apart.
            "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage.completion,
        },
    }


_TYPES = {
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    529: "overloaded_error",
}


def write_anthropic_error(problem: Problem) -> Json:
    """Anthropic's error body."""
    kind = _TYPES.get(problem.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": problem.message}}


def stream_anthropic_reply(message: Json) -> bytes:
    """A finished message as the events a streaming client expects, each block in one piece.

    AgentDojo's own Anthropic element always streams.
    """
    start = {**message, "content": [], "stop_reason": None}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(message["content"]):
        events += _block_events(index, block)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": message["usage"]})
    events.append({"type": "message_stop"})
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)


def _block_events(index: int, block: Json) -> list[Json]:
    if block["type"] == "text":
        start: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": block["text"]}
    else:
        arguments = block["input"]
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": text}
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


ANTHROPIC = WireFormat(
    name="anthropic",
    read=read_anthropic_request,
    write=write_anthropic_reply,
    error=write_anthropic_error,
    context_overflow="prompt is too long for the context window of this model",
    stream=stream_anthropic_reply,
)
