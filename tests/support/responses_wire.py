"""OpenAI's Responses API as a server reads and writes it.

As strict about reasoning as the real one: every reply begins with a reasoning item, and one that comes
back without the item it led to is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
from agentdojo.functions_runtime import FunctionCall
from vendor_wires import Answer, WireConversation

from agentsys.models.chat import ChatReply, JsonSchema, ToolSpec
from agentsys_plugins.serve.served_model.served_openai import (
    parse_call_arguments,
    read_text_blocks,
    write_openai_error,
)
from agentsys_plugins.serve.served_model.wire_format import Json, WireFormat, WireRequest

_RESPONSE = "resp_"
_MESSAGE = "message"
"""What a reasoning item says it led to where that was no call; of a call it says the id."""


def read_responses_request(body: Json) -> WireRequest:
    """A request for a response as we read it."""
    conversation = _ItemReader()
    conversation.said.system(read_text_blocks(body.get("instructions")))
    given = body.get("input")
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given or []:
        conversation.add(item)
    conversation.end()
    if not conversation.said.messages:
        raise ValueError("'input' must hold at least one item")
    return WireRequest(
        messages=conversation.said.messages,
        tools=tuple(_tool(orjson.dumps(tool)) for tool in body.get("tools") or []),
        temperature=body.get("temperature"),
        max_tokens=body.get("max_output_tokens"),
        reply_schema=_reply_schema(body.get("text")),
        tool_choice="none" if body.get("tool_choice") == "none" else "auto",
    )


@dataclass
class _ItemReader:
    """Collects items; neighbouring items of the model are one assistant message."""

    said: WireConversation = field(default_factory=WireConversation)
    _content: Any = None
    _calls: list[FunctionCall] = field(default_factory=list)
    _thought: Json | None = None
    """The reasoning item just read."""

    def add(self, item: Json) -> None:
        """Add one item.

        Raises:
            ValueError: If it is unknown, or stands where it may not.
        """
        kind = item.get("type", "message")
        if kind == "reasoning":
            self._check_led_to("")
            self._thought = item
            return
        if kind == "message" and item.get("role") == "assistant":
            self._check_led_to(_MESSAGE)
            self._flush()
            self._content = item.get("content")
        elif kind == "function_call":
            self._check_led_to(str(item.get("call_id")))
            args = parse_call_arguments(item.get("arguments"))
            self._calls.append(FunctionCall(function=item["name"], args=args, id=item["call_id"]))
        else:
            self.end()
            self._add_other(kind, item)

    def end(self) -> None:
        """End the assistant message that is being collected."""
        self._check_led_to("")
        self._flush()

    def _add_other(self, kind: object, item: Json) -> None:
        match kind, item.get("role"):
            case "function_call_output", _:
                self.said.result(item.get("call_id"), read_text_blocks(item.get("output")))
            case "message", "user":
                self.said.user(read_text_blocks(item.get("content")))
            case "message", "system" | "developer":
                self.said.system(read_text_blocks(item.get("content")))
            case other:
                raise ValueError(f"unknown item {other!r}")

    def _flush(self) -> None:
        if self._content is not None or self._calls:
            self.said.assistant(read_text_blocks(self._content), self._calls)
        self._content, self._calls = None, []

    def _check_led_to(self, found: str) -> None:
        thought, self._thought = self._thought, None
        if thought is None:
            return
        if thought.get("encrypted_content") != found:
            name = f"Item '{thought.get('id')}' of type 'reasoning'"
            raise ValueError(f"{name} was provided without its required following item.")


@lru_cache
def _tool(raw: bytes) -> ToolSpec:
    tool = orjson.loads(raw)
    return ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {})


def _reply_schema(text: object) -> JsonSchema | None:
    wanted = text.get("format") if isinstance(text, dict) else None
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    schema: JsonSchema | None = wanted.get("schema")
    return schema


def write_responses_reply(number: int, reply: ChatReply) -> Json:
    """A response: a reasoning item, then text and calls."""
    answer = Answer(number, reply)
    text = [] if answer.text is None else [_message(answer)]
    output = [*text, *(_call(call) for call in answer.calls)]
    if output:
        output.insert(0, _reasoning(answer))
    return {
        "id": f"{_RESPONSE}{answer.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(answer),
    }


def _reasoning(answer: Answer) -> Json:
    led_to = _MESSAGE if answer.text is not None else answer.calls[0].id
    return {"type": "reasoning", "id": f"rs_{answer.number}", "summary": [], "encrypted_content": led_to}


def _message(answer: Answer) -> Json:
    part: Json = {"type": "output_text", "text": answer.text, "annotations": []}
    about = {"type": "message", "id": f"msg_{answer.number}", "role": "assistant", "status": "completed"}
    return {**about, "content": [part]}


def _call(call: FunctionCall) -> Json:
    arguments = orjson.dumps(call.args).decode()
    about = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "status": "completed"}
    return {**about, "name": call.function, "arguments": arguments}


def _usage(answer: Answer) -> Json:
    usage = answer.usage
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


RESPONSES = WireFormat(
    name="openai-responses",
    path="/v1/responses",
    read=read_responses_request,
    write=write_responses_reply,
    error=write_openai_error,
    context_overflow="Your input exceeds the context window of this model. Please adjust your input.",
)
