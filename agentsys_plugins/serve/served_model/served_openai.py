"""OpenAI chat completions as a server reads and writes them."""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import Annotated, Any, Literal

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string
from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, Field, PositiveInt

from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import ChatReply, JsonSchema, ToolSpec, text_of
from agentsys_plugins.serve.served_model.wire_format import (
    Json,
    RequestRefused,
    TracedReply,
    WireFormat,
    WireRequest,
)

MAX_TOOLS = 1024
MAX_SCHEMA_BYTES = 256 * 1024
"""Of all tools of a request together."""
_MAX_KEPT_LISTS = 256
"""Lists of tools that are remembered: every request brings them all again, and equal ones should be one object,
so that whoever caches by a schema's identity finds it."""
TRACE_FIELD = "agentsys_trace"
"""Field of a request's `metadata` that stands for the header `x-agentsys-trace`."""
UNTRUSTED_FIELD = "agentsys_untrusted"
"""Field of a request's `metadata` that asks for the field of this name in the message of a structured answer."""


def read_text_blocks(content: object) -> list[MessageContentBlock] | None:
    """Wire content - null, a string, or a list of text parts - as content blocks."""
    if content is None:
        return None
    parts = [content] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise ValueError("'content' must be null, a string or a list of parts")
    texts = [part.get("text", part.get("refusal")) if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("only text parts are understood here")
    return [text_content_block_from_string(text) for text in texts]


def _write_out(schema: object) -> object:
    """A schema as an object: `true` takes whatever comes, `false` nothing."""
    return {} if schema is True else {"not": {}} if schema is False else schema


class _Function(BaseModel):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: Annotated[JsonSchema | None, BeforeValidator(_write_out)] = None
    arguments: str | None = None


class _Tool(BaseModel):
    type: Literal["function"] | None = None
    function: _Function


class _Tools(BaseModel):
    tools: list[_Tool]


class _Call(BaseModel):
    id: str
    function: _Function

    @property
    def read(self) -> FunctionCall:
        name, arguments = self.function.name, parse_call_arguments(self.function.arguments)
        return FunctionCall(function=name, args=arguments, id=self.id)


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "input", "ipython"]
    content: Annotated[Any, AfterValidator(read_text_blocks)] = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None

    @property
    def is_nameless(self) -> bool:
        """True if it is what a tool returned in a protocol in which calls are text: no id says of which call."""
        return self.role in ("tool", "input", "ipython") and self.tool_call_id is None


class _Body(BaseModel):
    """A request's fields that are read; what an SDK's next release adds is not."""

    model: str | None = None
    messages: list[_Message] = Field(min_length=1)
    stream: bool | None = None
    tools: list[Json] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: str | _Tool | None = None
    temperature: float | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    response_format: Json | None = None
    schema_: JsonSchema | None = Field(
        None, validation_alias=AliasPath("response_format", "json_schema", "schema")
    )
    trace: str | None = Field(None, validation_alias=AliasPath("metadata", TRACE_FIELD))
    untrusted: str | bool | None = Field(None, validation_alias=AliasPath("metadata", UNTRUSTED_FIELD))


def _read_message(message: _Message, calls: dict[str, FunctionCall]) -> ChatMessage:
    """A message; tool results find the call that they answer by its id."""
    blocks = message.content or []
    if message.role in ("system", "developer"):
        return {"role": "system", "content": blocks}
    if message.role == "assistant":
        made = [call.read for call in message.tool_calls or ()]
        calls.update((call.id or "", call) for call in made)
        return {"role": "assistant", "content": blocks or None, "tool_calls": made or None}
    if message.role == "user" or message.is_nameless:
        return {"role": "user", "content": blocks}
    call = calls.get(message.tool_call_id or "")
    if call is None:
        raise ValueError(f"no earlier tool call has the id {message.tool_call_id!r} that a tool result names")
    blocks = blocks or [text_content_block_from_string("")]
    return {"role": "tool", "content": blocks, "tool_call": call, "tool_call_id": call.id, "error": None}


def read_openai_request(body: Json) -> WireRequest:
    """A chat-completions request as we read it; ValueError if it cannot be understood."""
    read, calls = _Body.model_validate(body), dict[str, FunctionCall]()
    messages = [_read_message(message, calls) for message in read.messages]
    choice = read.tool_choice.function.name if isinstance(read.tool_choice, _Tool) else read.tool_choice
    return WireRequest(
        messages=[one for one in messages if one["role"] != "system" or one["content"]],
        tools=_read_tools(_dump_tools(read.tools)) if read.tools else (),
        model=read.model or "",
        streams=bool(read.stream),
        temperature=read.temperature,
        max_tokens=read.max_completion_tokens or read.max_tokens,
        reply_schema=_read_answer_schema(read),
        tool_choice="none" if read.tool_choice == "none" else "auto",
        forced=choice if choice and choice not in ("auto", "none") else "",
        trace=read.trace or "",
        marks_untrusted=read.untrusted in (True, "true"),
        nameless_results=any(message.is_nameless for message in read.messages),
    )


def parse_call_arguments(text: str | None) -> dict[str, Any]:
    """The arguments of a call, given as JSON text; none where that is no object."""
    # OpenAI accepts any text here and so do we: a client may show the model its own broken call.
    try:
        arguments = json.loads(text or "{}")  # orjson takes a whole number of 20 digits for a float.
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _read_answer_schema(read: _Body) -> JsonSchema | None:
    """The schema of the answer that is wanted; of any object in OpenAI's older mode."""
    is_older = (read.response_format or {}).get("type") == "json_object"
    return {"type": "object"} if is_older else read.schema_


def _dump_tools(tools: list[Json]) -> bytes:
    try:
        return orjson.dumps({"tools": tools})
    except TypeError as error:  # of orjson, which reads deeper than it writes
        raise ValueError(f"the tools are nested too deeply: {error}") from None


@lru_cache(maxsize=_MAX_KEPT_LISTS)
def _read_tools(raw: bytes) -> tuple[ToolSpec, ...]:
    if len(raw) > MAX_SCHEMA_BYTES:
        raise ValueError(
            f"the tools take {len(raw)} bytes; those of a request take {MAX_SCHEMA_BYTES} at most"
        )
    found = (tool.function for tool in _Tools.model_validate_json(raw).tools)
    return tuple(ToolSpec(one.name, one.description or "", one.parameters or {}) for one in found)


def write_openai_reply(number: int, reply: ChatReply) -> Json:
    """A chat completion with one choice."""
    said, usage = reply.message, reply.usage
    text = None if said["content"] is None else text_of(said)
    message: Json = {"role": "assistant", "content": text, "refusal": None}
    if said["tool_calls"]:
        message["tool_calls"] = [_write_call(call) for call in said["tool_calls"]]
    if isinstance(reply, TracedReply) and reply.untrusted is not None:
        message[UNTRUSTED_FIELD] = list(reply.untrusted)
    finish = "tool_calls" if said["tool_calls"] else "length" if reply.cut else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model_id,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }


def _write_call(call: FunctionCall) -> Json:
    text = to_json_bytes(dict(call.args)).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.function, "arguments": text}}


_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error", 529: "server_error"}
_CODES = {429: "rate_limit_exceeded", 503: "service_unavailable", 529: "overloaded"}


def write_openai_error(refused: RequestRefused) -> Json:
    """OpenAI's error body."""
    kind = _TYPES.get(refused.status, "invalid_request_error")
    code = refused.code or _CODES.get(refused.status)
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": code}}


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
    return b"".join(b"data: %b\n\n" % to_json_bytes(one) for one in (first, last)) + b"data: [DONE]\n\n"


OPENAI = WireFormat(
    name="openai",
    path="/v1/chat/completions",
    read=read_openai_request,
    write=write_openai_reply,
    error=write_openai_error,
    context_overflow="This request exceeds the model's maximum context length; shorten the messages.",
    stream=stream_openai_reply,
)
