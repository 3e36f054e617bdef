"""`AnthropicModel`: Anthropic's messages API through the vendor's SDK; wire format first, model behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentdojo.types import ChatMessage, MessageContentBlock

from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import ChatReply, ChatRequest, Usage
from agentsys.models.providers import wire_parts
from agentsys.models.providers.reply_reader import PLAIN_READING, RawCall, RawReply, Reading
from agentsys.models.providers.sdk_model import PostingModel
from agentsys.models.providers.wire_parts import (
    NOTE_PREFIX,
    OPENAI_ITEM_PREFIX,
    CallIds,
    as_mapping,
    make_malformed_reply_error,
    read_system_text,
)
from agentsys.models.tool_schema import is_closed_schema

AnthropicBlock = dict[str, Any]

API_VERSION = "2023-06-01"
"""Sent with every request. The SDK's own is 2026-10-21 from 2.0 on, under which the API refuses `temperature`."""

_TAKEN_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")

ANTHROPIC_ITEM_PREFIX = "anthropic:"
"""Begins the id of a thinking block that holds a block of Anthropic's of another kind."""
UNSIGNED_PREFIX = "unsigned:"
"""Begins the id of a thinking block that came without a signature, and goes back so: other vendors speak this
API, too (DeepSeek, Kimi), and refuse a turn without its thoughts. What follows is the signature's field."""


def build_stand_in_tools(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """A tool without parameters for each one the conversation has calls of, in order of name.

    The API refuses tool blocks in a request that offers no tools, as agents make it whose tools stand in the
    prompt. To be sent with a tool choice of `none`.
    """
    assistants = [message for message in messages if message["role"] == "assistant"]
    names = {call.function for message in assistants for call in message["tool_calls"] or ()}
    return [{"name": name, "input_schema": {"type": "object"}} for name in sorted(names)]


def build_anthropic_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The conversation without system messages; neighbours of one role are merged.

    All results of a turn's calls must stand in the one user message that follows it, before any text.
    """
    ids = CallIds(_TAKEN_IDS)
    merged: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _build_wire_blocks(message, ids)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def _build_wire_blocks(message: ChatMessage, ids: CallIds) -> list[AnthropicBlock]:
    if message["role"] == "tool":
        result: AnthropicBlock = {
            "type": "tool_result",
            "tool_use_id": ids.pick_result_id(message),
            "content": wire_parts.read_result_text(message),
        }
        return [result | {"is_error": True}] if message["error"] is not None else [result]
    blocks = [wire for block in message["content"] or () if (wire := _build_wire_block(block)) is not None]
    if message["role"] == "assistant":
        for call in message["tool_calls"] or ():
            use = {
                "type": "tool_use",
                "id": ids.pick_call_id(call),
                "name": call.function,
                "input": call.args,
            }
            blocks.append(use)
        # Thoughts alone, whose text or calls a defense took away, are refused: a turn may not end on them.
        if all(block["type"] in ("thinking", "redacted_thinking") for block in blocks):
            return []
    return blocks


def has_calls_without_thinking(wired: Sequence[Mapping[str, Any]]) -> bool:
    """True if the last assistant turn calls tools and does not begin with thoughts of the model's own.

    So it is where a defense made up the calls, or rebuilt the turn without its thoughts. With thinking
    switched on by a budget (`type: enabled`) the API refuses such a conversation; adaptive thinking takes it.
    """
    last: Sequence[AnthropicBlock] = next(
        (turn["content"] for turn in reversed(wired) if turn["role"] == "assistant"), []
    )
    calls = any(block["type"] == "tool_use" for block in last)
    return calls and last[0]["type"] not in ("thinking", "redacted_thinking")


def _build_wire_block(block: MessageContentBlock) -> AnthropicBlock | None:
    # Empty text is refused; reasoning goes back as it came, signed, or not at all.
    if block["type"] == "thinking":
        signature = block["id"]
        if signature and signature.startswith(UNSIGNED_PREFIX):
            return {
                "type": "thinking",
                "thinking": block["content"],
                **as_mapping(wire_parts.parse_json(signature.removeprefix(UNSIGNED_PREFIX))),
            }
        if not signature or signature.startswith((OPENAI_ITEM_PREFIX, NOTE_PREFIX)):
            return None
        if signature.startswith(ANTHROPIC_ITEM_PREFIX):
            return dict(as_mapping(wire_parts.parse_json(signature.removeprefix(ANTHROPIC_ITEM_PREFIX))))
        return {"type": "thinking", "thinking": block["content"], "signature": signature}
    if block["type"] == "redacted_thinking":
        return {"type": "redacted_thinking", "data": block["content"]}
    text = block["content"]
    return {"type": "text", "text": text} if text and text.strip() else None


def read_anthropic_reply(data: object, reading: Reading = PLAIN_READING) -> ChatReply:
    """Read a message; see `Reading.read`."""
    return reading.read(data, "content", _parse_usage, _read_content)


def _read_content(body: Mapping[str, Any]) -> RawReply:
    content = body.get("content")
    if isinstance(content, str) and body.get("type") == "message":
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise make_malformed_reply_error("the reply has no content list")
    raw = [as_mapping(block) for block in content]
    blocks = [parsed for block in raw if (parsed := _parse_block(block)) is not None]
    thoughts = [block for block in raw if block.get("type") in ("thinking", "redacted_thinking")]
    sealed = any(block.get("signature") or block["type"] != "thinking" for block in thoughts)
    return RawReply(
        blocks,
        [
            RawCall(block.get("name"), block.get("input"), block.get("id"))
            for block in raw
            if block.get("type") == "tool_use"
        ],
        reasons=[body.get("stop_reason")],
        words=as_mapping(body.get("stop_details")).get("explanation"),
        left_in_thoughts="" if sealed else "\n".join(str(block.get("thinking") or "") for block in thoughts),
        is_list=True,
    )


def _parse_block(block: Mapping[str, Any]) -> MessageContentBlock | None:
    match block.get("type"):
        case "text" if block.get("text"):
            return {"type": "text", "content": str(block["text"])}
        case "thinking":
            thought = str(block.get("thinking") or "")
            if signature := block.get("signature"):
                return {"type": "thinking", "content": thought, "id": str(signature)}
            unsigned = {name: block[name] for name in ("signature",) if name in block}
            return {
                "type": "thinking",
                "content": thought,
                "id": UNSIGNED_PREFIX + to_json_bytes(unsigned).decode(),
            }
        case "redacted_thinking":
            return {"type": "redacted_thinking", "content": str(block.get("data") or "")}
        case None | "text" | "tool_use":
            return None
    # What a tool of the server's own said: it goes back as it came, or a paused turn could not go on.
    return {"type": "thinking", "content": "", "id": ANTHROPIC_ITEM_PREFIX + to_json_bytes(block).decode()}


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    # `input_tokens` leaves out what was read from or written to the prompt cache; our `prompt` has it all.
    cached = wire_parts.read_token_count(usage.get("cache_read_input_tokens"))
    by_lifetime = as_mapping(usage.get("cache_creation")).values()
    written = wire_parts.read_token_count(usage.get("cache_creation_input_tokens")) or sum(
        map(wire_parts.read_token_count, by_lifetime)
    )
    details = as_mapping(usage.get("output_tokens_details"))
    return wire_parts.make_usage(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        extra=cached + written,
        cached=cached,
        written=written,
        reasoning=wire_parts.read_token_count(
            details.get("reasoning_tokens") or details.get("thinking_tokens")
        ),
    )


WITHOUT_THINKING = "asked without thinking: calls in the conversation have no thoughts of the model's own"
"""Note on a reply to a conversation that a defense rebuilt or made up."""


@dataclass(repr=False, eq=False, kw_only=True)
class AnthropicModel(PostingModel):
    """A model behind Anthropic's SDK. Its `base_url` is given without `/v1`."""

    max_tokens: int = field()
    """Most output tokens, thoughts included; Anthropic demands a bound."""
    thinking: Literal["adaptive", "disabled"] | None = None
    """Whether the model thinks, as much as it likes; None: not sent, the model's own default applies."""
    thinking_budget: int | None = None
    """Most tokens of thoughts, 1024 or more and fewer than `max_tokens`, for models before 4.6, which do not
    know `adaptive`; from 4.7 on it is refused. None: not sent."""
    effort: str | None = None
    """`low`, `medium`, `high`, `xhigh` or `max`; None: not sent, the model's own default applies."""
    structured: bool = False
    """Whether the model is held to `ChatRequest.reply_schema` and `form_schema` (where all objects are closed)."""

    prompt_cache: bool = False
    """Whether the provider keeps what a request begins with for the next one: tools, system message and the
    conversation so far then cost a tenth, and a quarter more where they are new. Replies are the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        thinking: dict[str, Any] | None = None
        if self.thinking_budget is not None:
            thinking = {"type": "enabled", "budget_tokens": self.thinking_budget}
        elif self.thinking is not None:
            thinking = {"type": self.thinking}
        if thinking is not None:
            self._fixed.setdefault("thinking", thinking)

    @property
    def _path(self) -> str:
        # The SDK's own `post` also because `messages.create` has no `temperature` from 2.0 on, and refuses large
        # `max_tokens` without streaming.
        return "/v1/messages"

    def _make_client(self) -> Any:
        import anthropic  # 1.5 s of CPU: only where a model is really built

        headers = {"anthropic-version": API_VERSION}
        if self._key:
            # The SDK sends it as a bearer token from 2.0 on, which not all gateways read.
            headers["X-Api-Key"] = self._key
        return self._make_sdk(
            anthropic.Anthropic, anthropic.DefaultHttpxClient, "https://api.anthropic.com", headers
        )

    def _read_reply(self, answer: bytes, reading: Reading) -> ChatReply:
        reply, sent = read_anthropic_reply(answer, reading), reading.request.messages
        if self._thinks_by_budget and has_calls_without_thinking(build_anthropic_messages(sent)):
            return replace(reply, notes=(*reply.notes, WITHOUT_THINKING))
        return reply

    @property
    def _thinks_by_budget(self) -> bool:
        return as_mapping(self._fixed.get("thinking")).get("type") == "enabled"

    def _build_output_config(self, request: ChatRequest) -> dict[str, Any]:
        config: dict[str, Any] = {} if self.effort is None else {"effort": self.effort}
        schema = request.schema_to_send(structured=True)
        if self.structured and schema is not None and is_closed_schema(schema):
            config["format"] = {"type": "json_schema", "schema": dict(schema)}
        return {"output_config": config} if config else {}

    def _build_body(self, request: ChatRequest) -> bytes:
        messages = build_anthropic_messages(request.messages)
        body: dict[str, Any] = {
            "model": self.model_id,
            "max_tokens": request.max_tokens or self.max_tokens,
            "messages": messages,
        }
        if prompt := read_system_text(request.messages):
            body["system"] = prompt
        if self.prompt_cache:
            # On the last block; what comes before it is looked up.
            body["cache_control"] = {"type": "ephemeral"}
        body |= self._build_temperature_field(request) | self._build_output_config(request) | self._fixed
        if self._thinks_by_budget and has_calls_without_thinking(messages):
            body["thinking"] = {"type": "disabled"}
        if request.tools:
            tools = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            body |= {"tool_choice": {"type": request.tool_choice}, "tools": tools}
        elif stand_ins := build_stand_in_tools(request.messages):
            body |= {"tool_choice": {"type": "none"}, "tools": stand_ins}
        return to_json_bytes(body)
