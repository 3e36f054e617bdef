"""Thoughts that servers of chat completions send in fields of their own, and want back as they came.

OpenRouter and MiniMax put them beside a message (`reasoning_details`), litellm does so with Anthropic's blocks
(`thinking_blocks`), and Gemini's signatures stand at the calls (`extra_content`, `provider_specific_fields`).
They are kept in the message as a thinking block without words, whose id holds the fields: so they go back to
the server alone that sent them, and a defense that drops a call or a message drops them with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentdojo.types import ChatAssistantMessage, MessageContentBlock

from agentsys.base.json_values import to_json_bytes
from agentsys.models.providers.wire_parts import as_mapping, parse_json

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
