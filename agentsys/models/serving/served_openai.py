"""OpenAI chat completions as a server reads and writes them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson
from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import JsonSchema, ToolSpec
from agentsys.models.serving import wire_format
from agentsys.models.serving.exchange import WireConversation, function_call
from agentsys.models.serving.wire_format import (
    Answer,
    Json,
    Problem,
    WireCall,
    WireError,
    WireFormat,
    WireRequest,
)


def read_openai_request(body: Json, role: str) -> WireRequest:
    """A chat-completions request as we read it."""
    if not body.get("messages"):
        raise WireError("'messages' must hold at least one message")
    conversation = WireConversation()
    messages = wire_format.read_object_list(body["messages"], "messages")
    for message in messages:
        _read_message(conversation, message)
    choice, forced = wire_format.read_tool_choice(body.get("tool_choice"))
    return WireRequest(
        messages=conversation.messages,
        tools=tuple(
            _tool(orjson.dumps(tool)) for tool in wire_format.read_object_list(body.get("tools"), "tools")
        ),
        role=role,
        temperature=wire_format.optional_number(body, "temperature"),
        max_tokens=wire_format.optional_count(body, "max_completion_tokens", "max_tokens"),
        reply_schema=_reply_schema(body.get("response_format")),
        tool_choice=choice,
        forced=forced,
        one_call=body.get("parallel_tool_calls") is False,
        nameless_results=any(_is_nameless(message) for message in messages),
    )


def _read_message(conversation: WireConversation, message: Json) -> None:
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            conversation.system(content)
        case "user":
            conversation.user(content)
        case "assistant":
            calls = [
                _call(call) for call in wire_format.read_object_list(message.get("tool_calls"), "tool_calls")
            ]
            conversation.assistant(content, calls)
        case "tool" | "input" | "ipython" if _is_nameless(message):
            conversation.user(content)
        case "tool":
            conversation.result(message.get("tool_call_id"), content)
        case other:
            raise WireError(f"unknown message role {other!r}")


def _is_nameless(message: Json) -> bool:
    """Whether it is what a tool returned in a protocol in which calls are text: such a role, and no id."""
    return message.get("role") in ("tool", "input", "ipython") and message.get("tool_call_id") is None


def _call(call: Json) -> FunctionCall:
    return function_call(call.get("id"), call["function"].get("name"), parse_call_arguments(call["function"]))


def parse_call_arguments(function: Json) -> dict[str, Any]:
    """The arguments of a call, given as JSON text; none where that is no object."""
    # OpenAI accepts any text here and so do we: a client may show the model its own broken call.
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except orjson.JSONDecodeError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


@lru_cache(maxsize=wire_format.MAX_KEPT_TOOLS)
def _tool(raw: bytes) -> ToolSpec:
    tool = orjson.loads(raw)
    wire_format.require_function_tool(tool.get("type"), "function", None)
    function = tool["function"]
    return wire_format.read_tool_spec(
        function.get("name"), function.get("description"), function.get("parameters")
    )


def _reply_schema(response_format: object) -> JsonSchema | None:
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return None
    schema: JsonSchema | None = response_format["json_schema"].get("schema")
    return schema


def write_openai_reply(answer: Answer) -> Json:
    """A chat completion with one choice."""
    message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [_write_call(call) for call in answer.calls]
    finish = "tool_calls" if answer.calls else "stop"
    return {
        "id": f"chatcmpl-{answer.number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _usage(answer),
    }


def _write_call(call: WireCall) -> Json:
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _usage(answer: Answer) -> Json:
    usage = answer.usage
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error", 529: "server_error"}
_CODES = {429: "rate_limit_exceeded", 503: "service_unavailable", 529: "overloaded"}


def write_openai_error(problem: Problem) -> Json:
    """OpenAI's error body."""
    kind = _TYPES.get(problem.status, "invalid_request_error")
    code = problem.code or _CODES.get(problem.status)
    return {"error": {"message": problem.message, "type": kind, "param": None, "code": code}}


def write_model_list(names: Iterable[str]) -> Json:
    """The reply to GET /v1/models."""
    about = {"object": "model", "created": 0, "owned_by": "agentsys"}
    return {"object": "list", "data": [{"id": name, **about} for name in names]}


def stream_openai_reply(completion: Json) -> bytes:
    """A finished completion as the chunks of a stream: all of it, then its end with the usage."""
    about = {name: completion[name] for name in ("id", "created", "model")}
    about["object"] = "chat.completion.chunk"
    [choice] = completion["choices"]
    said = dict(choice["message"])
    if calls := said.get("tool_calls"):
        said["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    first = {**about, "choices": [{"index": 0, "delta": said, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    last = {**about, "choices": [end], "usage": completion["usage"]}
    return b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in (first, last)) + b"data: [DONE]\n\n"


OPENAI = WireFormat(
    name="openai",
    read=read_openai_request,
    write=write_openai_reply,
    error=write_openai_error,
    context_overflow="This request exceeds the model's maximum context length; shorten the messages.",
    stream=stream_openai_reply,
)
