"""OpenAI's Responses API on the wire: request bodies and replies, without any SDK.

Nothing is stored at the provider. A model's reasoning comes as opaque items, encrypted, each of which must
be sent back right before the item it led to and is refused alone. They stand in the message's content as
thinking blocks that know what they led to; so whoever rewrites a conversation, and drops a call or a whole
message, drops its reasoning too, and no item is ever an orphan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentdojo.types import ChatAssistantMessage, ChatMessage, MessageContentBlock

from agentsys.models.chat import ChatReply, JsonSchema, ToolSpec, Usage
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.price import Price, price_reply
from agentsys.models.providers import wire_text
from agentsys.models.providers.openai_wire import parse_body, is_closed_schema
from agentsys.models.providers.sdk_errors import http_error
from agentsys.models.providers.wire_text import OPENAI_ITEM_PREFIX, CallIds, malformed_reply, as_mapping

ResponsesItem = dict[str, Any]

LED_TO_MESSAGE = "message"
"""What a reasoning item led to where it was no call."""
_ITEM_FIELDS = ("type", "id", "summary", "content", "encrypted_content")


def responses_tools_json(tools: Sequence[ToolSpec]) -> bytes:
    """The tools on offer, as JSON. Not strict: the schemas of benchmarks are no closed ones."""
    return wire_text.encode_for_wire(
        [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ]
    )


def responses_text_format(schema: JsonSchema) -> ResponsesItem:
    """The field `text`, which makes the server enforce a JSON schema on the reply's text."""
    named = {"name": "reply", "schema": dict(schema), "strict": is_closed_schema(schema)}
    return {"format": {"type": "json_schema", **named}}


def responses_items(messages: Sequence[ChatMessage], system_role: str) -> list[ResponsesItem]:
    """The conversation; system messages go under `system_role`."""
    ids = CallIds()
    return [item for message in messages for item in _wire_items(message, system_role, ids)]


def _wire_items(message: ChatMessage, system_role: str, ids: CallIds) -> Iterator[ResponsesItem]:
    match message["role"]:
        case "system":
            yield {"role": system_role, "content": wire_text.visible_text(message)}
        case "user":
            yield {"role": "user", "content": wire_text.visible_text(message)}
        case "tool":
            output = wire_text.result_text(message)
            yield {"type": "function_call_output", "call_id": ids.id_of_result(message), "output": output}
        case "assistant":
            yield from _assistant_items(message, ids)
        case role:
            raise ValueError(f"a message of role {role!r}; known: system, user, assistant, tool")


def _assistant_items(message: ChatAssistantMessage, ids: CallIds) -> Iterator[ResponsesItem]:
    opaque = list(_reasoning_notes(message["content"] or ()))
    if text := wire_text.visible_text(message):
        yield from _items_before(LED_TO_MESSAGE, opaque)
        phase = next((note["phase"] for note in opaque if note.get("phase")), None)
        yield {"role": "assistant", "content": text, **({"phase": phase} if phase else {})}
    for call in message["tool_calls"] or ():
        call_id = ids.id_of_call(call)
        yield from _items_before(call_id, opaque)
        # Without the item's own id, by which the API would demand the reasoning that it knows for it.
        arguments = wire_text.arguments_json(call)
        yield {"type": "function_call", "call_id": call_id, "name": call.function, "arguments": arguments}


def _reasoning_notes(blocks: Sequence[MessageContentBlock]) -> Iterator[Mapping[str, Any]]:
    for block in blocks:
        mark = block["id"] if block["type"] == "thinking" else None
        if mark and mark.startswith(OPENAI_ITEM_PREFIX):
            yield as_mapping(wire_text.parse_json(mark.removeprefix(OPENAI_ITEM_PREFIX)))


def _items_before(target: str, opaque: Sequence[Mapping[str, Any]]) -> Iterator[ResponsesItem]:
    return (dict(note["item"]) for note in opaque if note.get("before") == target and note.get("item"))


def read_responses_reply(data: object, price: Price | None, key: str | None = None) -> ChatReply:
    """A reply as our type; see `openai_wire.read_reply` for what it takes.

    Raises:
        ModelError: `MALFORMED_REPLY` if it is not a response; the error's kind if it failed under status 200;
            `CONTENT_REFUSED` if a filter stopped it; `CUT_REPLY` if a bound on tokens cut a call's arguments.
    """
    body = parse_body(data, key)
    if body.get("error"):
        raise http_error(_ERROR_STATUS.get(str(as_mapping(body["error"]).get("code")), 500), body, None, key)
    usage, reason = _parse_usage(as_mapping(body.get("usage"))), _incomplete_reason(body)
    cut = reason == "max_output_tokens"
    return price_reply(lambda: _parse_message(body, reason), usage, price, body.get("model"), cut=cut)


_ERROR_STATUS = {"rate_limit_exceeded": 429, "invalid_prompt": 400, "context_length_exceeded": 400}


def _incomplete_reason(body: Mapping[str, Any]) -> str:
    if body.get("status") != "incomplete":
        return ""
    return str(as_mapping(body.get("incomplete_details")).get("reason"))


def _parse_message(body: Mapping[str, Any], incomplete: str) -> ChatAssistantMessage:
    output = body.get("output")
    if not isinstance(output, list):
        raise malformed_reply("the reply has no list of output items")
    items = [as_mapping(item) for item in output]
    calls = [_parse_call(item) for item in items if item.get("type") == "function_call"]
    text = "\n".join(filter(None, (_item_text(item) for item in items if item.get("type") == "message")))
    if incomplete == "content_filter" and not text and not calls:
        raise ModelError(ErrorKind.CONTENT_REFUSED, "the provider's content filter stopped the reply")
    blocks = list(_thinking_blocks(items))
    if text:
        blocks.append({"type": "text", "content": text})
    return {"role": "assistant", "content": blocks or None, "tool_calls": calls or None}


def _parse_call(item: Mapping[str, Any]) -> Any:
    name = item.get("name")
    return wire_text.make_call(
        name, wire_text.parse_arguments(str(name), item.get("arguments")), item.get("call_id")
    )


def _item_text(item: Mapping[str, Any]) -> str:
    parts = item.get("content")
    listed = [as_mapping(part) for part in parts] if isinstance(parts, list) else []
    found = [part.get("text") or part.get("refusal") for part in listed]
    return "".join(text for text in found if isinstance(text, str))


def _thinking_blocks(items: Sequence[Mapping[str, Any]]) -> Iterator[MessageContentBlock]:
    """A block for each reasoning item, and one for the phase of a message, which newer models want back."""
    for place, item in enumerate(items):
        if item.get("type") == "reasoning":
            kept = {name: item[name] for name in _ITEM_FIELDS if item.get(name) is not None}
            led_to = next((later for later in items[place + 1 :] if later.get("type") != "reasoning"), {})
            before = led_to.get("call_id") if led_to.get("type") == "function_call" else led_to.get("type")
            # Without its content the provider would look for it in its store, where nothing is.
            usable = kept.get("encrypted_content") or kept.get("content")
            note = {"item": kept, "before": before} if usable else {}
            yield {"type": "thinking", "content": _summary_text(item), "id": _encode_note(note)}
        elif item.get("type") == "message" and isinstance(item.get("phase"), str):
            yield {"type": "thinking", "content": "", "id": _encode_note({"phase": item["phase"]})}


def _summary_text(item: Mapping[str, Any]) -> str:
    lists = (item.get("summary"), item.get("content"))
    parts = [as_mapping(part).get("text") for one in lists if isinstance(one, list) for part in one]
    return "\n".join(text for text in parts if isinstance(text, str))


def _encode_note(note: Mapping[str, Any]) -> str:
    return OPENAI_ITEM_PREFIX + wire_text.encode_for_wire(note).decode()


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    details = as_mapping(usage.get("input_tokens_details"))
    return wire_text.usage_from_counts(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        cached=wire_text.token_count(details.get("cached_tokens")),
        written=wire_text.token_count(details.get("cache_write_tokens")),
        reasoning=wire_text.token_count(as_mapping(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
