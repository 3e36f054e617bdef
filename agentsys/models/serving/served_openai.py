"""OpenAI chat completions as a server reads and writes them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string

from agentsys.models.chat import JsonSchema, ToolSpec
from agentsys.models.serving import wire_format
from agentsys.models.serving.wire_format import (
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    Answer,
    Json,
    Problem,
    WireCall,
    WireError,
    WireFormat,
    WireRequest,
)

TRACE_FIELD = "agentsys_trace"
"""Field of a request's `metadata` that stands for the header `x-agentsys-trace`."""
_SHOWN_CHARS = 60


def text_blocks(content: object) -> list[MessageContentBlock] | None:
    """Wire content - null, a string, or a list of text parts - as content blocks.

    Raises:
        WireError: If a part is not text.
    """
    if content is None:
        return None
    if isinstance(content, str):
        return [text_content_block_from_string(content)]
    if not isinstance(content, list):
        raise WireError("'content' must be null, a string or a list of parts")
    return [text_content_block_from_string(_part_text(part)) for part in content]


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise WireError("only text parts are understood here")
    return text


class WireConversation:
    """Messages in order; tool results find the call they answer by its id."""

    def __init__(self) -> None:
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
        if call is None:
            raise WireError(f"no earlier tool call has the id {call_id!r} that a tool result names")
        blocks = text_blocks(content) or [text_content_block_from_string("")]
        error = "\n".join(block["content"] or "" for block in blocks) if is_error else None
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


def read_openai_request(body: Json, role: str) -> WireRequest:
    """A chat-completions request as we read it."""
    if not body.get("messages"):
        raise WireError("'messages' must hold at least one message")
    conversation = WireConversation()
    messages = wire_format.read_object_list(body["messages"], "messages")
    for message in messages:
        _read_message(conversation, message)
    metadata = body.get("metadata")
    return WireRequest(
        messages=conversation.messages,
        tools=_read_tools(wire_format.read_object_list(body.get("tools"), "tools")),
        role=role,
        temperature=wire_format.optional_number(body, "temperature"),
        max_tokens=wire_format.optional_count(body, "max_completion_tokens", "max_tokens"),
        reply_schema=_read_reply_schema(body.get("response_format")),
        tool_choice="none" if body.get("tool_choice") == "none" else "auto",
        forced=_read_forced(body.get("tool_choice")),
        one_call=body.get("parallel_tool_calls") is False,
        nameless_results=any(map(_is_nameless, messages)),
        trace=str(metadata.get(TRACE_FIELD) or "") if isinstance(metadata, dict) else "",
    )


def _read_message(conversation: WireConversation, message: Json) -> None:
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            conversation.system(content)
        case "user":
            conversation.user(content)
        case "assistant":
            calls = wire_format.read_object_list(message.get("tool_calls"), "tool_calls")
            conversation.assistant(content, [_read_call(call) for call in calls])
        case "tool" | "input" | "ipython" if _is_nameless(message):
            conversation.user(content)
        case "tool":
            conversation.result(message.get("tool_call_id"), content)
        case other:
            raise WireError(f"unknown message role {str(other)[:_SHOWN_CHARS]!r}")


def _is_nameless(message: Json) -> bool:
    """Whether it is what a tool returned in a protocol in which calls are text: such a role, and no id."""
    return message.get("role") in ("tool", "input", "ipython") and message.get("tool_call_id") is None


def _read_call(call: Json) -> FunctionCall:
    function = call["function"]
    return function_call(call.get("id"), function.get("name"), parse_call_arguments(function))


def parse_call_arguments(function: Json) -> dict[str, Any]:
    """The arguments of a call, given as JSON text; none where that is no object."""
    # OpenAI accepts any text here and so do we: a client may show the model its own broken call.
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except orjson.JSONDecodeError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _read_tools(tools: list[Json]) -> tuple[ToolSpec, ...]:
    if len(tools) > MAX_TOOLS:
        raise WireError(f"{len(tools)} tools; a request brings {MAX_TOOLS} at most")
    texts = [orjson.dumps(tool) for tool in tools]
    if (size := sum(map(len, texts))) > MAX_SCHEMA_BYTES:
        raise WireError(f"the tools take {size} bytes; those of a request take {MAX_SCHEMA_BYTES} at most")
    return tuple(map(_read_tool, texts))


@lru_cache(maxsize=wire_format.MAX_KEPT_TOOLS)
def _read_tool(raw: bytes) -> ToolSpec:
    tool = orjson.loads(raw)
    if (kind := tool.get("type")) not in ("function", None):
        raise WireError(
            f"a tool of type {str(kind)[:_SHOWN_CHARS]!r}: only functions with a schema are taken here"
        )
    function = tool["function"]
    return wire_format.read_tool_spec(
        function.get("name"), function.get("description"), function.get("parameters")
    )


def _read_forced(choice: Any) -> str:
    if choice in (None, "auto", "none"):
        return ""
    name = choice["function"].get("name") if isinstance(choice, dict) and "function" in choice else choice
    if not isinstance(name, str):
        raise WireError("'tool_choice' must be auto, none, required or the name of a function")
    return name


def _read_reply_schema(response_format: object) -> JsonSchema | None:
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return None
    schema = response_format["json_schema"].get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise WireError("'response_format': the schema must be an object")
    return schema


def write_openai_reply(answer: Answer) -> Json:
    """A chat completion with one choice."""
    message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [_write_call(call) for call in answer.calls]
    finish = "tool_calls" if answer.calls else "stop"
    usage = answer.usage
    return {
        "id": f"chatcmpl-{answer.number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }


def _write_call(call: WireCall) -> Json:
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments, default=str).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


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
    path="/v1/chat/completions",
    read=read_openai_request,
    write=write_openai_reply,
    error=write_openai_error,
    context_overflow="This request exceeds the model's maximum context length; shorten the messages.",
    stream=stream_openai_reply,
)
