"""Anthropic messages on the wire: request bodies and replies, without any SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.types import ChatAssistantMessage, ChatMessage, MessageContentBlock

from agentsys.models.chat import ChatReply, ToolSpec, Usage
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.price import Price, priced_reply
from agentsys.models.providers import wire_text
from agentsys.models.providers.openai_wire import as_object
from agentsys.models.providers.sdk_errors import http_error
from agentsys.models.providers.wire_text import OPENAI_ITEM, CallIds, malformed, mapping_of

Block = dict[str, Any]


def wire_tools_json(tools: Sequence[ToolSpec]) -> bytes:
    """The tools on offer, as JSON."""
    return wire_text.encode(
        [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in tools
        ]
    )


def stand_in_tools(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """A tool without parameters for each one the conversation has calls of, in order of name.

    The API refuses tool blocks in a request that offers no tools, as agents make it whose tools stand in the
    prompt. To be sent with a tool choice of `none`.
    """
    assistants = [message for message in messages if message["role"] == "assistant"]
    names = {call.function for message in assistants for call in message["tool_calls"] or ()}
    return [{"name": name, "input_schema": {"type": "object"}} for name in sorted(names)]


def wire_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The conversation without system messages; neighbours of one role are merged.

    All results of a turn's calls must stand in the one user message that follows it, before any text.
    """
    ids = CallIds()
    merged: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message, ids)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def _blocks(message: ChatMessage, ids: CallIds) -> list[Block]:
    if message["role"] == "tool":
        result: Block = {
            "type": "tool_result",
            "tool_use_id": ids.of_result(message),
            "content": wire_text.result_text(message),
        }
        return [result | {"is_error": True}] if message["error"] is not None else [result]
    blocks = [wire for block in message["content"] or () if (wire := _block(block)) is not None]
    if message["role"] == "assistant":
        for call in message["tool_calls"] or ():
            use = {"type": "tool_use", "id": ids.of_call(call), "name": call.function, "input": call.args}
            blocks.append(use)
        # Thoughts alone, whose text or calls a defense took away, are refused: a turn may not end on them.
        if not any(block["type"] in ("text", "tool_use") for block in blocks):
            return []
    return blocks


def calls_without_thinking(wired: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last assistant turn calls tools and does not begin with thoughts of the model's own.

    So it is where a defense made up the calls, or rebuilt the turn without its thoughts. With thinking
    switched on by a budget (`type: enabled`) the API refuses such a conversation; adaptive thinking takes it.
    """
    last: Sequence[Block] = next(
        (turn["content"] for turn in reversed(wired) if turn["role"] == "assistant"), []
    )
    calls = any(block["type"] == "tool_use" for block in last)
    return calls and last[0]["type"] not in ("thinking", "redacted_thinking")


def _block(block: MessageContentBlock) -> Block | None:
    # Empty text is refused; reasoning goes back as it came, signed, or not at all.
    if block["type"] == "thinking":
        signature = block["id"]
        if not signature or signature.startswith(OPENAI_ITEM):
            return None
        return {"type": "thinking", "thinking": block["content"], "signature": signature}
    if block["type"] == "redacted_thinking":
        return {"type": "redacted_thinking", "data": block["content"]}
    text = block["content"]
    return {"type": "text", "text": text} if text and text.strip() else None


def read_reply(data: object, price: Price | None, key: str | None = None) -> ChatReply:
    """A reply as our type; see `openai_wire.read_reply` for what it takes.

    Raises:
        ModelError: `MALFORMED_REPLY` if it is not a message; `CONTENT_REFUSED` if it was refused.
    """
    body = as_object(data, key)
    if body.get("type") == "error":
        raise http_error(500, body, None, key)
    usage = _usage(mapping_of(body.get("usage")))
    cut = body.get("stop_reason") in _CUT
    return priced_reply(lambda: _reply_message(body), usage, price, body.get("model"), cut=cut)


_CUT = ("max_tokens", "model_context_window_exceeded")


def _reply_message(body: Mapping[str, Any]) -> ChatAssistantMessage:
    content = body.get("content")
    if not isinstance(content, list):
        raise malformed("the reply has no content list")
    if body.get("stop_reason") == "refusal" and not content:
        raise ModelError(ErrorKind.CONTENT_REFUSED, "the provider stopped the reply (stop_reason refusal)")
    return _message([mapping_of(block) for block in content])


def _message(blocks: Sequence[Mapping[str, Any]]) -> ChatAssistantMessage:
    content = [said for block in blocks if (said := _content(block)) is not None]
    calls = [
        wire_text.call_of(
            block.get("name"),
            wire_text.parse_arguments(str(block.get("name")), block.get("input")),
            block.get("id"),
        )
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    return {"role": "assistant", "content": content or None, "tool_calls": calls or None}


def _content(block: Mapping[str, Any]) -> MessageContentBlock | None:
    match block.get("type"):
        case "text" if block.get("text"):
            return {"type": "text", "content": str(block["text"])}
        case "thinking":
            signature = block.get("signature")
            thought = str(block.get("thinking") or "")
            return {"type": "thinking", "content": thought, "id": str(signature) if signature else None}
        case "redacted_thinking":
            return {"type": "redacted_thinking", "content": str(block.get("data") or "")}
    return None


def _usage(usage: Mapping[str, Any]) -> Usage:
    # `input_tokens` leaves out what was read from or written to the prompt cache; our `prompt` has it all.
    cached = wire_text.count_of(usage.get("cache_read_input_tokens"))
    written = wire_text.count_of(usage.get("cache_creation_input_tokens"))
    details = mapping_of(usage.get("output_tokens_details"))
    return wire_text.counted(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        extra=cached + written,
        cached=cached,
        written=written,
        reasoning=wire_text.count_of(details.get("reasoning_tokens") or details.get("thinking_tokens")),
    )
