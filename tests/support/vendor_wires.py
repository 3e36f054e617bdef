"""Anthropic's and Gemini's formats as a server reads and writes them: as much of them as our adapters send."""

from __future__ import annotations

import re
from typing import Any

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string

from agentsys.models.chat import ChatReply, JsonSchema, ToolSpec, text_of
from agentsys_plugins.serve.served_model.served_openai import read_text_blocks
from agentsys_plugins.serve.served_model.wire_format import Json, RequestRefused, WireFormat, WireRequest


class Answer:
    """A reply as the formats here are written from it."""

    def __init__(self, number: int, reply: ChatReply) -> None:
        said = reply.message
        self.number, self.model, self.usage = number, reply.model_id, reply.usage
        self.text = None if said["content"] is None else text_of(said)
        self.calls = said["tool_calls"] or []


class WireConversation:
    """Messages in order; tool results find the call they answer by its id."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self._calls: dict[str, FunctionCall] = {}

    def system(self, blocks: list[MessageContentBlock] | None) -> None:
        """Add a system message, unless it is empty."""
        if blocks:
            self.messages.append({"role": "system", "content": blocks})

    def user(self, blocks: list[MessageContentBlock] | None) -> None:
        """Add a user message."""
        self.messages.append({"role": "user", "content": blocks or []})

    def assistant(self, blocks: list[MessageContentBlock] | None, calls: list[FunctionCall]) -> None:
        """Add an assistant message; later tool results may answer its calls."""
        self._calls.update((call.id or "", call) for call in calls)
        self.messages.append({"role": "assistant", "content": blocks or None, "tool_calls": calls or None})

    def result(
        self, call_id: str | None, blocks: list[MessageContentBlock] | None, error: str | None = None
    ) -> None:
        """Add a tool result.

        Raises:
            ValueError: If no earlier assistant message made a call of this id.
        """
        call = self._calls.get(call_id or "")
        if call is None:
            raise ValueError(f"no earlier tool call has the id {call_id!r} that a tool result names")
        blocks = blocks or [text_content_block_from_string("")]
        self.messages.append(
            {"role": "tool", "content": blocks, "tool_call": call, "tool_call_id": call.id, "error": error}
        )


def answer_call(conversation: WireConversation, call_id: Any, content: object, is_error: bool) -> None:
    """Add a tool result. An error's text stands in `error`, as in AgentDojo's own messages."""
    blocks = read_text_blocks(content) or []
    error = "\n".join(block["content"] or "" for block in blocks) if is_error else None
    conversation.result(call_id, None if is_error else blocks, error)


def read_anthropic_request(body: Json) -> WireRequest:
    """A messages request as we read it."""
    conversation = WireConversation()
    conversation.system(read_text_blocks(body.get("system")))
    for message in body["messages"]:
        _read_message(conversation, message)
    choice = "none" if (body.get("tool_choice") or {}).get("type") == "none" else "auto"
    return WireRequest(
        messages=conversation.messages,
        tools=tuple(
            ToolSpec(tool["name"], tool.get("description") or "", tool["input_schema"])
            for tool in body.get("tools") or ()
        ),
        temperature=body.get("temperature"),
        max_tokens=body["max_tokens"],
        reply_schema=_anthropic_schema(body),
        tool_choice=choice,
    )


def _read_message(conversation: WireConversation, message: Json) -> None:
    content = message.get("content")
    match message.get("role"):
        case "system":
            conversation.system(read_text_blocks(content))
        case "user":
            _read_user(conversation, content)
        case "assistant":
            _read_assistant(conversation, content)
        case other:
            raise ValueError(f"unknown message role {other!r}")


def _read_user(conversation: WireConversation, content: object) -> None:
    """A user message may hold tool results, text, or both: neighbours of a kind become one message."""
    if not isinstance(content, list):
        return conversation.user(read_text_blocks(content))
    texts: list[Json] = []
    for block in content:
        if block.get("type") != "tool_result":
            texts.append(block)
            continue
        if texts:
            conversation.user(read_text_blocks(texts))
            texts = []
        answer_call(conversation, block.get("tool_use_id"), block.get("content"), bool(block.get("is_error")))
    if texts:
        conversation.user(read_text_blocks(texts))
    return None


_SERVER_BLOCK = re.compile(r"\A(server_tool_use|\w+_tool_result)\Z")


def _read_assistant(conversation: WireConversation, content: object) -> None:
    if not isinstance(content, list):
        return conversation.assistant(read_text_blocks(content), [])
    # What the server's own tools said comes back with a turn that was paused; only it can read that.
    blocks = [block for block in content if not _SERVER_BLOCK.search(str(block.get("type")))]
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    calls = [FunctionCall(function=use["name"], args=use["input"], id=use["id"]) for use in uses]
    texts = read_text_blocks([block for block in blocks if block.get("type") != "tool_use"])
    return conversation.assistant(texts, calls)


def _anthropic_schema(body: Json) -> JsonSchema | None:
    wanted = (body.get("output_config") or {}).get("format") or {}
    schema: JsonSchema | None = wanted.get("schema")
    return schema


def write_anthropic_reply(number: int, reply: ChatReply) -> Json:
    """An assistant message; an empty reply has no content blocks."""
    answer = Answer(number, reply)
    content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.function, "input": call.args}
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


def write_anthropic_error(refused: RequestRefused) -> Json:
    """Anthropic's error body."""
    kind = _TYPES.get(refused.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}}


ANTHROPIC = WireFormat(
    name="anthropic",
    path="/v1/messages",
    read=read_anthropic_request,
    write=write_anthropic_reply,
    error=write_anthropic_error,
    context_overflow="prompt is too long for the context window of this model",
)


def read_gemini_request(body: Json) -> WireRequest:
    """A generateContent request as we read it."""
    reader = _GeminiReader()
    reader.system(body.get("systemInstruction"))
    for content in body["contents"]:
        reader.content(content)
    config = body.get("generationConfig") or {}
    choice = "none" if _calling_mode(body) == "none" else "auto"
    return WireRequest(
        messages=reader.conversation.messages,
        tools=_tools(body),
        temperature=config.get("temperature"),
        max_tokens=config.get("maxOutputTokens"),
        reply_schema=_gemini_schema(config),
        tool_choice=choice,
    )


class _GeminiReader:
    """Reads contents in order; remembers which calls still wait for their result."""

    def __init__(self) -> None:
        self.conversation = WireConversation()
        self._waiting: list[FunctionCall] = []
        self._made = 0

    def system(self, content: object) -> None:
        parts = content.get("parts") if isinstance(content, dict) else content
        self.conversation.system(read_text_blocks(parts))

    def content(self, content: Json) -> None:
        parts = [part for part in content.get("parts") or () if not part.get("thought")]
        if content.get("role") == "model":
            return self._model_turn(parts)
        results = [part.get("functionResponse") for part in parts]
        for result in results:
            if result is not None:
                self._result(result)
        texts = [part for part, result in zip(parts, results, strict=True) if result is None]
        if texts or not parts:
            self.conversation.user(read_text_blocks(texts))
        return None

    def _model_turn(self, parts: list[Json]) -> None:
        made = [part.get("functionCall") for part in parts]
        calls = [self._call(call) for call in made if call is not None]
        self._waiting += calls
        texts = [part for part, call in zip(parts, made, strict=True) if call is None]
        self.conversation.assistant(read_text_blocks([part for part in texts if "text" in part]), calls)

    def _call(self, call: Json) -> FunctionCall:
        self._made += 1  # Ids are optional in this format; results may name the function alone.
        call_id = call.get("id") or f"unnamed_call_{self._made}"
        return FunctionCall(function=call["name"], args=call.get("args") or {}, id=call_id)

    def _result(self, result: Json) -> None:
        call = self._answered(result.get("id"), result.get("name"))
        self._waiting.remove(call)
        response = result.get("response") or {}
        answer_call(self.conversation, call.id, _result_text(response), "error" in response)

    def _answered(self, call_id: object, name: object) -> FunctionCall:
        """The call a result belongs to: of its id, or the first waiting one of its name."""
        by_id = [call for call in self._waiting if call.id == call_id]
        by_name = [call for call in self._waiting if call.function == name]
        for call in by_id or by_name:
            return call
        raise ValueError(f"a function response for {name!r} answers no function call before it")


def _result_text(response: Json) -> object:
    """The text of a function response: by convention under `error`, `output` or `result`."""
    for key in ("error", "output", "result"):
        if key in response and len(response) == 1:
            return _plain(response[key])
    return orjson.dumps(response).decode()


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_block(item) for item in value):
        return "\n".join(item["content"] for item in value)  # AgentDojo sends its content blocks.
    return orjson.dumps(value).decode()


def _is_block(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("content"), str)


def _tools(body: Json) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(one["name"], one.get("description") or "", one["parametersJsonSchema"])
        for tool in body.get("tools") or ()
        for one in tool["functionDeclarations"]
    )


def _gemini_schema(config: Json) -> JsonSchema | None:
    schema: JsonSchema | None = config.get("responseJsonSchema")
    return schema


def _calling_mode(body: Json) -> str | None:
    config = body.get("toolConfig") or {}
    mode = (config.get("functionCallingConfig") or {}).get("mode")
    return None if mode in (None, "MODE_UNSPECIFIED") else str(mode).lower()


def write_gemini_reply(number: int, reply: ChatReply) -> Json:
    """A response with one candidate; an empty reply's content has no parts."""
    answer = Answer(number, reply)
    parts: list[Json] = [{"text": answer.text}] if answer.text else []
    parts += [
        {"functionCall": {"id": call.id, "name": call.function, "args": call.args}} for call in answer.calls
    ]
    content: Json = {"role": "model", "parts": parts} if parts else {"role": "model"}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": _usage(answer),
        "modelVersion": answer.model,
        "responseId": f"response-{answer.number}",
    }


def _usage(answer: Answer) -> Json:
    usage = answer.usage
    return {
        "promptTokenCount": usage.prompt,
        "cachedContentTokenCount": usage.cached,
        "candidatesTokenCount": usage.completion - usage.reasoning,  # Gemini counts thoughts apart.
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.prompt + usage.completion,
    }


_STATUSES = {
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    529: "UNAVAILABLE",
}


def write_gemini_error(refused: RequestRefused) -> Json:
    """Google's error body; it repeats the wait in its details."""
    status = _STATUSES.get(refused.status, "INVALID_ARGUMENT")
    body: Json = {"code": refused.status, "message": refused.message, "status": status}
    if refused.retry_after_s is not None:
        retry = {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": f"{refused.retry_after_s}s",
        }
        body["details"] = [retry]
    return {"error": body}


GEMINI = WireFormat(
    name="gemini",
    path="/[^/]+/models/.+:generateContent",
    read=read_gemini_request,
    write=write_gemini_reply,
    error=write_gemini_error,
    context_overflow="The input token count exceeds the maximum number of tokens allowed for this model.",
)
