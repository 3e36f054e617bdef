"""Gemini generateContent on the wire: request bodies and replies, without any SDK."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage

from agentsys.models.chat import ChatReply, ToolSpec, Usage
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.price import Price, price_reply
from agentsys.models.providers import wire_text
from agentsys.models.providers.openai_wire import parse_body
from agentsys.models.providers.wire_text import malformed_reply, as_mapping

OWN_ID_PREFIX = "agentsys-"
"""Ids we made because the API gave none start so; they are not sent back."""

_REFUSALS = {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION"}

GeminiPart = dict[str, Any]


def gemini_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools on offer: one group of declarations."""
    declarations = [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
        for tool in tools
    ]
    return [{"functionDeclarations": declarations}]


UNSIGNED_CALL = "skip_thought_signature_validator"
"""Google's stand-in for the thought signature of a call that no Gemini made: a defense did, or it is the
first of a turn whose signed call a defense took away."""


def gemini_contents(
    messages: Sequence[ChatMessage], signatures: Mapping[str, str], *, demands_signatures: bool = False
) -> list[dict[str, Any]]:
    """The conversation without system messages.

    Args:
        messages: The conversation in AgentDojo's types.
        signatures: Tool call id -> the thought signature it came with, which goes back with it.
        demands_signatures: Whether the first call of each turn must have a signature, as Gemini 3 wants it.

    Returns:
        Contents; the results of one turn's calls stand in one, as the API demands.
    """
    contents: list[dict[str, Any]] = []
    in_results = False
    for message in messages:
        if message["role"] == "system":
            continue
        if message["role"] == "tool":
            part = _result_part(message)
            if in_results:
                contents[-1]["parts"].append(part)
            else:
                contents.append({"role": "user", "parts": [part]})
        else:
            role = "model" if message["role"] == "assistant" else "user"
            parts = _wire_parts(message, signatures)
            first = next((part for part in parts if "functionCall" in part), None)
            if demands_signatures and first is not None:
                first.setdefault("thoughtSignature", UNSIGNED_CALL)
            contents.append({"role": role, "parts": parts})
        in_results = message["role"] == "tool"
    return contents


def _wire_parts(message: ChatMessage, signatures: Mapping[str, str]) -> list[GeminiPart]:
    text = wire_text.visible_text(message)
    calls = (message["tool_calls"] or []) if message["role"] == "assistant" else []
    parts: list[GeminiPart] = [{"text": text}] if text or not calls else []
    return parts + [_call_part(call, signatures) for call in calls]


def _call_part(call: FunctionCall, signatures: Mapping[str, str]) -> GeminiPart:
    made = {"name": call.function, "args": json.loads(wire_text.arguments_json(call))}
    part: GeminiPart = {"functionCall": _with_id(made, call.id)}
    signature = signatures.get(call.id or "")
    return part | {"thoughtSignature": signature} if signature else part


def _result_part(message: ChatToolResultMessage) -> GeminiPart:
    field = "output" if message["error"] is None else "error"
    call = message["tool_call"]
    answer = {"name": call.function, "response": {field: wire_text.result_text(message)}}
    return {"functionResponse": _with_id(answer, message["tool_call_id"] or call.id)}


def _with_id(value: dict[str, Any], call_id: str | None) -> dict[str, Any]:
    return {"id": call_id, **value} if call_id and not call_id.startswith(OWN_ID_PREFIX) else value


def read_gemini_reply(data: object, price: Price | None, key: str | None = None) -> tuple[ChatReply, dict[str, str]]:
    """A reply as our type (see `openai_wire.read_reply`), and the thought signatures of its calls by call id.

    Raises:
        ModelError: `MALFORMED_REPLY` if it has no candidate; `CONTENT_REFUSED` if it was blocked.
    """
    body = parse_body(data, key)
    usage = _parse_usage(as_mapping(body.get("usageMetadata")))
    signatures: dict[str, str] = {}
    cut = _finish_reason(body) == "MAX_TOKENS"
    reply = price_reply(lambda: _parse_message(body, signatures), usage, price, body.get("modelVersion"), cut=cut)
    return reply, signatures


def _finish_reason(body: Mapping[str, Any]) -> str:
    candidates = body.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    return str(as_mapping(first).get("finishReason") or "")


def _parse_message(body: Mapping[str, Any], signatures: dict[str, str]) -> ChatAssistantMessage:
    """The message; the thought signatures of its calls are put into `signatures`."""
    candidate = _first_candidate(body)
    parts = as_mapping(candidate.get("content")).get("parts") or []
    if not isinstance(parts, list):
        raise malformed_reply("the reply's parts are not a list")
    said, calls = [], []
    for part in map(as_mapping, parts):
        if "functionCall" in part:
            call = _parse_call(as_mapping(part["functionCall"]))
            calls.append(call)
            if part.get("thoughtSignature"):
                signatures[str(call.id)] = str(part["thoughtSignature"])
        elif part.get("text") and not part.get("thought"):
            said.append(str(part["text"]))
    if not calls and not said:
        _check_finish(_finish_reason(body))
    return wire_text.reply_message("".join(said), calls)


def _first_candidate(body: Mapping[str, Any]) -> Mapping[str, Any]:
    candidates = body.get("candidates")
    if isinstance(candidates, list) and candidates and isinstance(candidates[0], Mapping):
        return candidates[0]
    blocked = as_mapping(body.get("promptFeedback")).get("blockReason")
    if blocked:
        raise ModelError(ErrorKind.CONTENT_REFUSED, f"the provider blocked the prompt ({blocked!s:.60})")
    raise malformed_reply("the reply has no candidates")


def _check_finish(reason: str) -> None:
    if reason in _REFUSALS:
        raise ModelError(ErrorKind.CONTENT_REFUSED, f"the provider stopped the reply ({reason})")
    if reason == "MALFORMED_FUNCTION_CALL":
        raise malformed_reply("the model wrote a tool call that the provider could not read")


def _parse_call(raw: Mapping[str, Any]) -> FunctionCall:
    name = raw.get("name")
    call_id = raw.get("id") or f"{OWN_ID_PREFIX}{uuid.uuid4().hex}"
    return wire_text.make_call(name, wire_text.parse_arguments(str(name), raw.get("args")), call_id)


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    # `candidatesTokenCount` leaves the thoughts out; our `completion` has them.
    thoughts = wire_text.token_count(usage.get("thoughtsTokenCount"))
    said = usage.get("candidatesTokenCount", 0 if thoughts else None)  # left out where nothing was said
    return wire_text.usage_from_counts(
        usage.get("promptTokenCount"),
        said + thoughts if isinstance(said, int) else said,
        extra=wire_text.token_count(usage.get("toolUsePromptTokenCount")),
        cached=wire_text.token_count(usage.get("cachedContentTokenCount")),
        reasoning=thoughts,
    )
