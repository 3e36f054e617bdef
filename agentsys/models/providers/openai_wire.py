"""OpenAI chat completions on the wire: request bodies and replies, text apart from thoughts; no SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentdojo.types import ChatMessage, MessageContentBlock

from agentsys.models.chat import ChatReply, JsonSchema, ToolSpec
from agentsys.models.endings import PLAIN_ENDINGS, find_ending, keep_reason
from agentsys.models.providers import wire_parts
from agentsys.models.providers.reply_reader import (
    PLAIN_READING,
    RawCall,
    RawReply,
    Reading,
    raise_error_field,
)
from agentsys.models.providers.wire_parts import (
    PRINTABLE_IDS,
    CallIds,
    as_mapping,
    keep_call_fields,
    keep_message_fields,
    make_malformed_reply_error,
    restore_opaque_thoughts,
    sign_made_up_calls,
)
from agentsys.models.thought_text import split_all_thoughts
from agentsys.models.tool_schema import is_closed_schema

_THOUGHT_PARTS = frozenset({"thinking", "reasoning", "redacted_thinking", "reasoning_content"})
_KEPT_IDS = re.compile(rf"[A-Za-z0-9]{{9}}|(?!(?!toolu)[a-z_]+[\d_]*\Z){PRINTABLE_IDS.pattern}")
"""Ids that are sent as they are. Others, a word and a number, a defense made up; Mistral's templates refuse them."""


@dataclass(frozen=True)
class ReplyText:
    """A model's reply without its thoughts."""

    text: str | None
    """None where the reply has no content at all, or none that is text."""
    thoughts: str = ""


def join_content_parts(content: object) -> ReplyText:
    """The content of a reply: a text, or the list of parts that some models and gateways send.

    Parts are texts, or objects with a text; their kind is often left out. Anything else is passed over.
    """
    if isinstance(content, str):
        return ReplyText(content)
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return ReplyText(None)
    parts = [part for part in content if isinstance(part, str | Mapping)]
    thoughts = "".join(_read_part_text(part) for part in parts if _is_thought_part(part))
    return ReplyText(
        "".join(_read_part_text(part) for part in parts if not _is_thought_part(part)) or None, thoughts
    )


def _is_thought_part(part: str | Mapping[str, Any]) -> bool:
    return not isinstance(part, str) and part.get("type") in _THOUGHT_PARTS


def _read_part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, list):  # Mistral's thoughts are parts of their own.
        return "".join(map(_read_part_text, part))
    if not isinstance(part, Mapping):
        return ""
    values = (part.get(field) for field in ("text", "thinking", "content", "summary", "refusal"))
    return next((_read_part_text(value) for value in values if isinstance(value, str | list)), "")


def split_think_tag(reply: ReplyText) -> ReplyText:
    """Take thoughts out of a text that a server without a reasoning parser left in it, wherever they stand."""
    if not reply.text:
        return reply
    thoughts, text = split_all_thoughts(reply.text)
    return ReplyText(text, reply.thoughts + thoughts)


def build_openai_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools on offer."""
    return [{"type": "function", "function": tool.json_object} for tool in tools]


def build_openai_messages(
    messages: Sequence[ChatMessage], system_role: str, reasoning_field: str | None = None
) -> list[dict[str, Any]]:
    """The conversation; thoughts go back beside tool calls in the field `reasoning_field`, if there is one."""
    ids = CallIds(_KEPT_IDS)
    wires = [_build_wire_message(message, system_role, ids, reasoning_field) for message in messages]
    sign_made_up_calls(wires)
    return wires


def _build_wire_message(
    message: ChatMessage, system_role: str, ids: CallIds, reasoning_field: str | None
) -> dict[str, Any]:
    match message["role"]:
        case "system" | "user" as role:
            text = wire_parts.read_visible_text(message)
            return {"role": system_role if role == "system" else role, "content": text}
        case "tool":
            # `name` is not in OpenAI's reference, which ignores it; chat templates of local models use it.
            name = message["tool_call"].function
            return {
                "role": "tool",
                "tool_call_id": ids.pick_result_id(message),
                "name": name,
                "content": wire_parts.read_result_text(message),
            }
        case "assistant":
            text = wire_parts.read_visible_text(message)
            if not message["tool_calls"]:
                return restore_opaque_thoughts(message, {"role": "assistant", "content": text})
            calls = [
                {
                    "id": ids.pick_call_id(call),
                    "type": "function",
                    "function": {"name": call.function, "arguments": wire_parts.write_arguments_json(call)},
                }
                for call in message["tool_calls"]
            ]
            thoughts = {reasoning_field: wire_parts.read_thoughts_text(message)} if reasoning_field else {}
            wire = {"role": "assistant", "content": text or None, **thoughts, "tool_calls": calls}
            return restore_opaque_thoughts(message, wire)
    raise ValueError(f"a message of role {message['role']!r}; known: system, user, assistant, tool")


def build_response_format(schema: JsonSchema) -> dict[str, Any]:
    """The field that makes a server enforce a JSON schema on the reply's text."""
    # OpenAI's strict mode asks for an object at the top as well.
    strict = schema.get("type") == "object" and is_closed_schema(schema)
    named = {"name": "reply", "schema": dict(schema), "strict": strict}
    return {"type": "json_schema", "json_schema": named}


def read_openai_reply(
    data: object, reading: Reading = PLAIN_READING, *, strip_think: bool = False
) -> ChatReply:
    """Read a chat completion (see `Reading.read`); `strip_think` takes thoughts out of its text."""
    parse = partial(_read_choices, strip_think=strip_think, key=reading.key)
    return reading.read(data, "choices", wire_parts.read_openai_usage, parse)


_SERVERS = ("provider", "system_fingerprint")


def _parse_logprobs(choices: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, float], ...]:
    """Per token the alternatives that the server tells of; nothing where it tells of none, or oddly."""
    tokens = next((as_mapping(choice.get("logprobs")).get("content") for choice in choices), None)
    by_token = []
    for token in tokens if isinstance(tokens, list) else ():
        others = as_mapping(token).get("top_logprobs")
        listed = [
            as_mapping(alternative) for alternative in (token, *(others if isinstance(others, list) else ()))
        ]
        by_token.append(
            {
                alternative["token"]: float(alternative["logprob"])
                for alternative in listed
                if isinstance(alternative.get("token"), str)
                and isinstance(alternative.get("logprob"), int | float)
            }
        )
    return tuple(by_token)


def _read_choices(body: Mapping[str, Any], strip_think: bool, key: str | None) -> RawReply:
    """All choices of a reply as one: some servers give each parallel call a choice of its own."""
    listed = body.get("choices")
    choices = [as_mapping(choice) for choice in listed] if isinstance(listed, list) else []
    for choice in choices:
        raise_error_field(choice, key)
    messages = [_read_message(choice, strip_think) for choice in choices]
    if not messages:
        raise make_malformed_reply_error("the reply has no choices")
    natives = [_read_native_reason(choice) for choice in choices]
    return RawReply(
        # An empty text beside another choice's is none.
        blocks=[b for one in messages for b in one.blocks if b["content"] or len(messages) == 1],
        calls=[call for one in messages for call in one.calls],
        reasons=[_read_reason(choice) for choice in choices],
        native=next(filter(None, natives), None),
        kept={name: value for one in messages for name, value in one.kept.items()},
        refused=any(one.refused for one in messages),
        left_in_thoughts="".join(one.left_in_thoughts for one in messages),
        more={
            "logprobs": _parse_logprobs(choices),
            **{name: body[name][:100] for name in _SERVERS if isinstance(body.get(name), str)},
        },
    )


def _read_reason(choice: Mapping[str, Any]) -> object:
    """Why a choice ended; `stop_reason`, beside a `finish_reason`, is vLLM's for the token or text that stopped it."""
    return next((choice[name] for name in _REASONS if choice.get(name)), None)


_REASONS = ("finish_reason", "finishReason", "stop_reason")


def _read_native_reason(choice: Mapping[str, Any]) -> object:
    """The word of the vendor behind OpenRouter, or behind litellm, which makes a plain one of it."""
    return choice.get("native_finish_reason") or as_mapping(choice.get("provider_specific_fields")).get(
        "native_finish_reason"
    )


_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
"""Fields for thoughts beside the content: DeepSeek's and older vLLM's; newer vLLM's, Groq's, OpenRouter's; others'."""


def _read_message(choice: Mapping[str, Any], strip_think: bool) -> RawReply:
    message = choice.get("message")
    if not isinstance(message, Mapping):
        # Azure leaves the message of a filtered choice out.
        if find_ending(keep_reason(_read_reason(choice))) in PLAIN_ENDINGS:
            raise make_malformed_reply_error("the reply has no choices[0].message")
        message = {}
    content = join_content_parts(message.get("content"))
    if strip_think:
        content = split_think_tag(content)
    refusal = _read_part_text(message.get("refusal"))
    apart = next(filter(None, (_read_part_text(message.get(field)) for field in _THOUGHT_FIELDS)), "")
    blocks: list[MessageContentBlock] = []
    if thoughts := apart or content.thoughts:
        blocks.append({"type": "thinking", "content": thoughts, "id": None})
    text = content.text or refusal or content.text
    if text is not None:  # an empty text is one: AgentDojo runs a pipeline again only where there is none
        blocks.append({"type": "text", "content": text})
    return RawReply(
        blocks,
        _list_calls(message),
        kept=keep_message_fields(message),
        refused=(bool(refusal) and not content.text) or _is_refusal(message.get("content")),
        left_in_thoughts=apart if apart and not _has_sealed_thoughts(message) else "",
    )


def _is_refusal(content: object) -> bool:
    """True if content in parts holds refusals alone."""
    kinds = [as_mapping(part).get("type") for part in content] if isinstance(content, list) else []
    return "refusal" in kinds and "text" not in kinds


def _list_calls(message: Mapping[str, Any]) -> list[RawCall]:
    calls = message.get("tool_calls") or message.get("function_call") or []
    calls = [calls] if isinstance(calls, Mapping) else calls
    if not isinstance(calls, list):
        raise make_malformed_reply_error("the reply's tool calls are not a list")
    lists = [listed for name in _PARTS if isinstance(listed := message.get(name), list)]
    parts = [as_mapping(part) for listed in lists for part in listed]
    calls = calls or [part for part in parts if part.get("type") in _CALL_PARTS]
    made = [RawCall.from_chat(call, keep_call_fields(call)) for call in calls]
    return [call for call in made if call.name or call.arguments] or made  # gateways add blank ones


_PARTS = ("content", "content_list")
"""Lists of parts: everybody's, and Snowflake's."""
_CALL_PARTS = ("tool_use", "tool_call", "function_call")
"""Parts of a content in which gateways leave the calls of another wire."""


def _has_sealed_thoughts(message: Mapping[str, Any]) -> bool:
    """True if the thoughts are a vendor's own, signed, encrypted or summed up, in which no parser leaves an answer."""
    fields = (message.get(field) for field in ("reasoning_details", "thinking_blocks"))
    parts = [as_mapping(part) for listed in fields if isinstance(listed, list) for part in listed]
    plain = ("reasoning.text", "thinking")
    return any(part.get("signature") or part.get("type") not in plain for part in parts)
