"""Parts that all wire formats share: message texts, ids of calls, JSON in and out, converted tool lists."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage

from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import UNCOUNTED, ErrorKind, ModelError, Usage
from agentsys.models.secrets import mask_key


def read_visible_text(message: ChatMessage) -> str:
    """The text blocks of a message joined by newlines: no hidden reasoning; `""` where there is none."""
    blocks = message["content"] or ()
    return "\n".join([block["content"] for block in blocks if block["type"] == "text" and block["content"]])


def read_thoughts_text(message: ChatMessage) -> str:
    """A model's thoughts as a server told them in the open; signed and encrypted ones are other vendors'."""
    blocks = message["content"] or ()
    return "\n".join([b["content"] for b in blocks if b["type"] == "thinking" and not b["id"]])


def read_system_text(messages: Sequence[ChatMessage]) -> str:
    """The system prompt, for wires on which it goes outside the conversation."""
    return "\n\n".join(filter(None, (read_visible_text(m) for m in messages if m["role"] == "system")))


def read_result_text(message: ChatToolResultMessage) -> str:
    """The text that a model reads as the result of a tool call: the error where there was one."""
    return message["error"] or read_visible_text(message)


class CallIds:
    """Ids for the tool calls and results of one conversation, in order.

    Providers demand an id; calls that a defense or a provider without ids made have none.
    Calls without one are numbered, and results without one answer them in order.
    """

    def __init__(self) -> None:
        self._unanswered: deque[str] = deque()
        self._count = 0

    def pick_call_id(self, call: FunctionCall) -> str:
        """The id of a call in an assistant message."""
        if call.id:
            return str(call.id)
        self._count += 1
        made_up = f"call_{self._count}"
        self._unanswered.append(made_up)
        return made_up

    def pick_result_id(self, message: ChatToolResultMessage) -> str:
        """The id that a tool message answers."""
        known: str | None = message["tool_call_id"] or message["tool_call"].id
        if known:
            return known
        return self._unanswered.popleft() if self._unanswered else "call_unknown"


def write_arguments_json(call: FunctionCall) -> str:
    """A call's arguments as JSON text."""
    return to_json_bytes(call.args).decode()


OPENAI_ITEM_PREFIX = "openai:"
"""Begins the id of a thinking block that holds an item of OpenAI's Responses API, which no other takes."""

MAX_LEVELS = 100
"""Objects and lists inside each other in a reply; what is deeper no request or file could carry back."""
_MAX_VALUES = 1_000_000
"""Values in a reply: 64 MB of small ones would take gigabytes once parsed."""
_UNREADABLE = (ValueError, RecursionError, MemoryError)
"""What `json.loads` raises; an integer of more than 4,300 digits is a plain ValueError."""


def parse_json(text: str | bytes, key: str | None = None) -> Any:
    """The JSON in a server's or a model's text (UTF-8, if bytes), fit to be stored and sent, without the key.

    Raises:
        ModelError: `MALFORMED_REPLY` if it is not JSON, or nested too deep or of too many values to be kept.
    """
    signs: Any = (",", "[", "{", "\\u", "\0") if isinstance(text, str) else (b",", b"[", b"{", b"\\u", b"\0")
    comma, bracket, brace, code, null = signs
    openings = text.count(bracket) + text.count(brace)
    if openings + text.count(comma) > _MAX_VALUES:
        raise make_malformed_reply_error(f"the reply holds more than {_MAX_VALUES:,} values")
    try:
        value = json.loads(text)
    except _UNREADABLE:
        raise make_malformed_reply_error("the reply is not JSON (is base_url right?)") from None
    # Plain ASCII (null bytes: UTF-16) spells no surrogate without an escape; each level opens a bracket.
    plain = text.isascii() and code not in text and null not in text
    return value if plain and openings <= MAX_LEVELS and not key else clean_json(value, key)


def clean_json(value: Any, key: str | None = None, levels: int = MAX_LEVELS) -> Any:
    """JSON data without lone surrogates, which no file or request could carry, and without the key.

    Raises:
        ModelError: `MALFORMED_REPLY` if it is nested deeper than `levels`.
    """
    if isinstance(value, str):
        clean = value if value.isascii() else value.encode("utf-8", "replace").decode()
        return mask_key(clean, key) if key else clean
    if isinstance(value, dict | list) and not levels:
        raise make_malformed_reply_error(f"the reply is nested more than {MAX_LEVELS} deep")
    if isinstance(value, dict):
        return {clean_json(name, key): clean_json(item, key, levels - 1) for name, item in value.items()}
    return [clean_json(item, key, levels - 1) for item in value] if isinstance(value, list) else value


def make_malformed_reply_error(what: str) -> ModelError:
    """The error for a reply that is not what its wire format promises."""
    return ModelError(ErrorKind.MALFORMED_REPLY, what)


def read_token_count(value: object) -> int:
    """A token count from a reply; 0 where there is none."""
    return value if _is_count(value) else 0


def make_usage(
    prompt: object,
    completion: object,
    *,
    extra: int = 0,
    cached: int = 0,
    reasoning: int = 0,
    written: int = 0,
) -> Usage:
    """The usage that a reply tells.

    Args:
        prompt: Its count of input tokens, whatever that is.
        completion: Its count of output tokens.
        extra: Further input tokens, which the provider counts apart from `prompt`.
        cached: Input tokens read from the provider's cache.
        reasoning: Output tokens of reasoning.
        written: Input tokens written to the provider's cache.

    Returns:
        `UNCOUNTED` unless both counts are whole numbers and some input was read: a prompt of 0 tokens is
        how some servers say that they do not count.
    """
    if not _is_count(prompt) or not _is_count(completion) or prompt + extra == 0:
        return UNCOUNTED
    whole = prompt + extra
    cached = min(cached, whole)
    return Usage(whole, completion, cached, min(reasoning, completion), written=min(written, whole - cached))


_MAX_COUNT = 100_000_000
"""Tokens of one request above which a number is no count."""


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def as_mapping(value: object) -> Mapping[str, Any]:
    """A JSON object from a reply; empty where there is none."""
    return value if isinstance(value, Mapping) else {}
