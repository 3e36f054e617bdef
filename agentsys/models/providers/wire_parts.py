"""Parts that all wire formats share: message texts, ids of calls, JSON in and out, converted tool lists.

Thoughts that servers of chat completions send in fields of their own, and want back as they came.

OpenRouter and MiniMax put them beside a message (`reasoning_details`), litellm does so with Anthropic's blocks
(`thinking_blocks`), and Gemini's signatures stand at the calls (`extra_content`, `provider_specific_fields`).
They are kept in the message as a thinking block without words, whose id holds the fields: so they go back to
the server alone that sent them, and a defense that drops a call or a message drops them with it.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeGuard

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage, MessageContentBlock

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


PRINTABLE_IDS = re.compile(r"[\x21-\x7e]{1,64}")


class CallIds:
    """Ids for the tool calls and results of one conversation, in order, as its provider takes them.

    Providers demand an id; calls that a defense or a provider without ids made have none.
    Calls without one are numbered, and results without one answer them in order.

    Args:
        kept: Ids that are sent as they are; in place of others goes one that every provider takes.
    """

    def __init__(self, kept: re.Pattern[str]) -> None:
        self._kept = kept
        self._unanswered: deque[str] = deque()
        self._count = 0

    def pick_call_id(self, call: FunctionCall) -> str:
        """The id of a call in an assistant message."""
        if call.id:
            return self._write_id(call.id)
        self._count += 1
        made_up = make_call_id(str(self._count))
        self._unanswered.append(made_up)
        return made_up

    def pick_result_id(self, message: ChatToolResultMessage) -> str:
        """The id that a tool message answers."""
        if known := message["tool_call_id"] or message["tool_call"].id:
            return self._write_id(known)
        return self._unanswered.popleft() if self._unanswered else make_call_id("unknown")

    def _write_id(self, call_id: str) -> str:
        return call_id if self._kept.fullmatch(call_id) else make_call_id(call_id)


@lru_cache(maxsize=10_000)
def make_call_id(seed: str) -> str:
    """An id that every provider takes: Mistral's templates want nine letters and digits. The same for one seed."""
    return hashlib.sha256(seed.encode()).hexdigest()[:9]


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
        page = find_page_title(text if isinstance(text, str) else text[:20_000].decode("utf-8", "replace"))
        raise make_malformed_reply_error(f"the reply is {page or 'not JSON'} (is base_url right?)") from None
    # Plain ASCII (null bytes: UTF-16) spells no surrogate without an escape; each level opens a bracket.
    plain = text.isascii() and code not in text and null not in text
    return value if plain and openings <= MAX_LEVELS and not key else clean_json(value, key)


_PAGE = re.compile(r"\s*(<!--.{0,2000}?-->\s*)?<(!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title[^>]*>(.{0,200}?)</title>", re.IGNORECASE | re.DOTALL)


def find_page_title(body: str) -> str:
    """Return the title of a web page that came in place of an answer of the API; `""` if the text is no page."""
    if not _PAGE.match(body):
        return ""
    title = _TITLE.search(body[:20_000])
    return f"a web page, {html.unescape(title.group(1)).strip()!r}" if title else "a web page"


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


_CACHED = (
    # OpenAI's; DeepSeek's; Anthropic's through gateways; Bedrock's; Mistral's; Kimi's stands beside the others
    *("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens", "cache_read_tokens"),
    *("cacheReadInputTokens", "num_cached_tokens"),
)
_WRITTEN = (
    *("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens"),
    *("cache_write_input_tokens", "cacheWriteInputTokens"),
)
_REASONING = ("reasoning_tokens", "thinking_tokens")
_DETAILS = (
    *("prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details"),
)


def read_openai_usage(usage: Mapping[str, Any]) -> Usage:
    """The usage of OpenAI's two APIs, with its details wherever a server writes them."""
    places = [usage, *(as_mapping(usage.get(name)) for name in _DETAILS)]
    fields = [field for place in places for field in place.items()]

    def find_count(names: Sequence[str]) -> int:
        return max((read_token_count(value) for name, value in fields if name in names), default=0)

    return make_usage(
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
        cached=find_count(_CACHED),
        written=find_count(_WRITTEN),
        reasoning=find_count(_REASONING),
        total=usage.get("total_tokens"),
    )


def make_usage(
    prompt: object,
    completion: object,
    *,
    extra: int = 0,
    cached: int = 0,
    reasoning: int = 0,
    written: int = 0,
    total: object = None,
) -> Usage:
    """The usage that a reply tells.

    Args:
        prompt: Its count of input tokens, whatever that is.
        completion: Its count of output tokens.
        extra: Further input tokens, which the provider counts apart from `prompt`.
        cached: Input tokens read from the provider's cache.
        reasoning: Output tokens of reasoning.
        written: Input tokens written to the provider's cache.
        total: Its sum of both, which decides whether reasoning and cached tokens are counted apart from them.

    Returns:
        `UNCOUNTED` unless both counts are whole numbers and some input was read: a prompt of 0 tokens is
        how some servers say that they do not count.
    """
    if not _is_count(prompt) or not _is_count(completion) or prompt + extra + cached + written == 0:
        return UNCOUNTED
    whole, kept = prompt + extra, cached + written
    outside = max(0, total - whole - completion) if _is_count(total) else 0
    told_apart = outside != reasoning and outside in (kept, kept + reasoning)
    if kept > whole or (kept and told_apart):
        whole += kept
        outside -= kept if told_apart else 0
    if total is None and reasoning > completion:
        outside = reasoning
    # What is in no other count is what was thought: Gemini's compatible endpoint does not name it.
    completion += outside
    cached = min(cached, whole)
    return Usage(whole, completion, cached, min(reasoning, completion), written=min(written, whole - cached))


_MAX_COUNT = 100_000_000
"""Tokens of one request above which a number is no count."""


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def as_mapping(value: object) -> Mapping[str, Any]:
    """A JSON object from a reply; empty where there is none."""
    return value if isinstance(value, Mapping) else {}


NOTE_PREFIX = "chat:"
"""Begins the id of such a block."""
_MESSAGE_FIELDS = ("reasoning_details", "thinking_blocks")
_CALL_FIELDS = ("extra_content", "provider_specific_fields")
UNSIGNED_CALL = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Google's stand-in for the signature of a call that no Gemini made: a defense did."""


def keep_message_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a reply's message that go back as they came."""
    return {name: message[name] for name in _MESSAGE_FIELDS if message.get(name)}


def keep_call_fields(call: object) -> dict[str, Any]:
    """The same of a call."""
    return {name: value for name in _CALL_FIELDS if (value := as_mapping(call).get(name))}


def note_opaque_thoughts(
    fields: Mapping[str, Any], at_calls: Mapping[str, Mapping[str, Any]]
) -> list[MessageContentBlock]:
    """The block with these fields, those of calls by the calls' ids; none where there are none."""
    if not fields and not at_calls:
        return []
    note = to_json_bytes({"fields": fields, "calls": at_calls}).decode()
    return [{"type": "thinking", "content": "", "id": f"{NOTE_PREFIX}{note}"}]


def restore_opaque_thoughts(message: ChatAssistantMessage, wire: dict[str, Any]) -> dict[str, Any]:
    """A message as it is sent, with the fields that it came with."""
    for note in read_notes(message["content"] or (), NOTE_PREFIX):
        wire = {**wire, **as_mapping(note.get("fields"))}
        at_calls = as_mapping(note.get("calls"))
        if wire.get("tool_calls"):
            sent = zip(message["tool_calls"] or (), wire["tool_calls"], strict=True)
            wire["tool_calls"] = [{**call, **as_mapping(at_calls.get(own.id))} for own, call in sent]
    return wire


def read_notes(blocks: Sequence[MessageContentBlock], prefix: str) -> Iterator[Mapping[str, Any]]:
    """Read the notes in the ids of thinking blocks that begin so."""
    for block in blocks:
        mark = block["id"] if block["type"] == "thinking" else None
        if mark and mark.startswith(prefix):
            yield as_mapping(parse_json(mark.removeprefix(prefix)))


def sign_made_up_calls(wires: Sequence[dict[str, Any]]) -> None:
    """Give turns that a defense made up Gemini's stand-in, in a conversation with signed calls: it wants one each."""
    turns = [wire["tool_calls"] for wire in wires if wire.get("tool_calls")]
    kept = [call["extra_content"] for calls in turns for call in calls if "extra_content" in call]
    if any("google" in as_mapping(fields) for fields in kept):
        for calls in turns:
            if not any("extra_content" in call for call in calls):
                calls[0]["extra_content"] = UNSIGNED_CALL
