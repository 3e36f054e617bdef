"""Conversations that a defense rewrote: no vendor is sent a thought without what it led to."""

from __future__ import annotations

import copy
import itertools
import json
import os
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from hypothesis import given, settings
from hypothesis import strategies as st
from providers_under_test import model_at

from agentsys.models.chat import ChatRequest, assistant, system, text_of, user
from agentsys.models.providers import anthropic, google, openai, openai_wire
from agentsys.models.providers.anthropic import AnthropicModel
from agentsys.models.providers.reply_reader import Reading

EXAMPLES = int(os.environ.get("AGENTSYS_FUZZED_HISTORIES", "50"))


def responses_turn(number: int, text: str) -> Any:
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": f"rs_{number}a", "summary": [], "encrypted_content": f"{number}"},
        {"type": "reasoning", "id": f"rs_{number}b", "summary": [], "encrypted_content": f"{number}"},
    ]
    if text:
        output.append(
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        )
        output.append({"type": "reasoning", "id": f"rs_{number}c", "summary": [], "encrypted_content": "x"})
    for which in "xy":
        about = {"type": "function_call", "call_id": f"call_{number}{which}", "name": "f"}
        output.append({**about, "arguments": json.dumps({"n": number})})
    return openai.read_responses_reply({"output": output, "model": "m"}).message


def anthropic_turn(number: int, text: str) -> Any:
    content: list[dict[str, Any]] = [
        {
            "type": "thinking",
            "thinking": "",
            "signature": f"sig{number}",
        },  # signed and empty, as from Opus 4.7 on
        {"type": "redacted_thinking", "data": "zz"},
    ]
    content += [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"t{number}{w}", "name": "f", "input": {"n": number}} for w in "xy"
    ]
    return anthropic.read_anthropic_reply({"type": "message", "content": content}).message


def google_turn(number: int, text: str, signatures: dict[str, str]) -> Any:
    calls = [{"functionCall": {"id": f"g{number}{w}", "name": "f", "args": {"n": number}}} for w in "xy"]
    calls[0]["thoughtSignature"] = f"sig{number}"  # type: ignore[assignment]
    parts = [*([{"text": text}] if text else []), *calls]
    reply, found = google.read_gemini_reply({"candidates": [{"content": {"parts": parts}}]})
    signatures |= found
    return reply.message


def deepseek_turn(number: int, text: str) -> Any:
    calls = [
        {"id": f"d{number}{w}", "function": {"name": "f", "arguments": json.dumps({"n": number})}}
        for w in "xy"
    ]
    message = {"content": text, "reasoning_content": f"hm {number}", "tool_calls": calls}
    return openai_wire.read_openai_reply({"choices": [{"message": message}]}).message


def result_of(call: FunctionCall) -> Any:
    block = {"type": "text", "content": "seen"}
    return {"role": "tool", "content": [block], "tool_call": call, "tool_call_id": call.id, "error": None}


def rewritten(turns: list[Any], ways: list[str]) -> list[Any]:
    """The history with each assistant turn rewritten in its way; calls that are gone have no results."""
    messages: list[Any] = [system("s"), user("u")]
    for turn, way in zip(turns, ways, strict=True):
        new = copy.copy(turn)
        if way == "drop the turn":
            continue
        if way == "drop the first call":
            new = {**turn, "tool_calls": turn["tool_calls"][1:]}
        elif way == "drop the last call":
            new = {**turn, "tool_calls": turn["tool_calls"][:-1]}
        elif way == "drop the calls":
            new = {**turn, "tool_calls": None}
        elif way == "drop the text":
            new = {**turn, "content": [b for b in turn["content"] or () if b["type"] != "text"] or None}
        elif way == "rebuild":
            new = assistant(text_of(turn) or None, turn["tool_calls"])
        elif way == "make up a call":
            new = assistant(None, [FunctionCall(function="open_file", args={}, id=None)])
        elif way == "put a call before":
            first = FunctionCall(function="look", args={}, id="made_up")
            new = {**turn, "tool_calls": [first, *turn["tool_calls"]]}
        messages += [new, *(result_of(call) for call in new["tool_calls"] or ())]
    return messages


WAYS = [
    "leave", "drop the turn", "drop the first call", "drop the last call", "drop the calls", "drop the text",
    "rebuild", "make up a call", "put a call before",
]  # fmt: skip
HISTORIES = st.lists(
    st.tuples(st.sampled_from(WAYS), st.sampled_from(["", "I look."])), min_size=1, max_size=4
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(HISTORIES)
def test_no_reasoning_item_is_an_orphan(plan: list[tuple[str, str]]) -> None:
    turns = [responses_turn(number, text) for number, (_, text) in enumerate(plan)]
    items = openai.build_responses_items(rewritten(turns, [way for way, _ in plan]), "system")
    originals = [
        item for number, (_, text) in enumerate(plan) for item in _led_to(responses_turn(number, text))
    ]
    for item, after in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            target = after.get("id") or after.get("call_id") or after.get("role")
            assert (item["id"], target) in originals
    outputs = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    assert outputs == {item["call_id"] for item in items if item.get("type") == "function_call"}


def _led_to(turn: Any) -> list[tuple[str, str]]:
    """(reasoning item, what stood right behind it) as the reply was."""
    items = openai.build_responses_items([turn], "system")
    names = [str(item.get("id") or item.get("call_id") or item.get("role")) for item in items]
    return [(name, after) for name, after in itertools.pairwise(names) if name.startswith("rs_")]


@settings(max_examples=EXAMPLES, deadline=None)
@given(HISTORIES)
def test_no_thinking_block_is_an_orphan_and_unsigned_calls_are_asked_without_thinking(
    plan: list[tuple[str, str]],
) -> None:
    turns = [anthropic_turn(number, text) for number, (_, text) in enumerate(plan)]
    messages = rewritten(turns, [way for way, _ in plan])
    wired = anthropic.build_anthropic_messages(messages)
    spoken = [turn["content"] for turn in wired if turn["role"] == "assistant"]
    for content in spoken:
        assert content[-1]["type"] in ("text", "tool_use")
        assert all(block["signature"] for block in content if block["type"] == "thinking")
    body = json.loads(_THINKING._build_body(ChatRequest(messages)))  # type: ignore[attr-defined]
    begins = not spoken or spoken[-1][0]["type"] in ("thinking", "redacted_thinking")
    calls = bool(spoken) and any(block["type"] == "tool_use" for block in spoken[-1])
    assert body["thinking"]["type"] == ("disabled" if calls and not begins else "enabled")


_THINKING = model_at(
    "anthropic", "http://127.0.0.1:9", max_tokens=9000, thinking_budget=2000, temperature=None
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(HISTORIES)
def test_the_first_call_of_every_turn_has_a_thought_signature_or_googles_stand_in(
    plan: list[tuple[str, str]],
) -> None:
    known: dict[str, str] = {}
    turns = [google_turn(number, text, known) for number, (_, text) in enumerate(plan)]
    messages = rewritten(turns, [way for way, _ in plan])
    for content in google.build_gemini_contents(messages, known, demands_signatures=True):
        calls = [part for part in content["parts"] if "functionCall" in part]
        for part in calls[:1]:
            own = known.get(part["functionCall"].get("id", ""))
            assert part["thoughtSignature"] == (own or google.UNSIGNED_CALL)
        assert google.UNSIGNED_CALL not in [part.get("thoughtSignature") for part in calls[1:]]
    unsigned = google.build_gemini_contents(messages, known)
    assert google.UNSIGNED_CALL not in json.dumps(unsigned)


def test_signatures_of_calls_whose_ids_repeat_from_turn_to_turn_go_back_with_their_own_calls() -> None:
    messages, known = [user("Hi")], dict[str, str]()
    for number in range(3):
        parts = [
            {
                "functionCall": {"id": "c0", "name": "f", "args": {"n": which}},
                "thoughtSignature": f"{number}{which}",
            }
            for which in range(2)
        ]
        body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
        reply, signatures = google.read_gemini_reply(body, Reading(ChatRequest(messages)))
        known |= signatures
        messages = [*messages, reply.message]
    contents = google.build_gemini_contents(messages, known)
    firsts = [content["parts"][0] for content in contents if content["role"] == "model"]
    assert [part["thoughtSignature"] for part in firsts] == ["00", "10", "20"]


@settings(max_examples=EXAMPLES, deadline=None)
@given(HISTORIES)
def test_calls_never_go_back_without_the_field_for_thoughts(plan: list[tuple[str, str]]) -> None:
    turns = [deepseek_turn(number, text) for number, (_, text) in enumerate(plan)]
    messages = rewritten(turns, [way for way, _ in plan])
    for message in openai_wire.build_openai_messages(messages, "system", "reasoning_content"):
        assert ("reasoning_content" in message) == ("tool_calls" in message)


def gateway_turn(number: int, text: str) -> Any:
    """A turn of Gemini 3 as its compatible endpoint and OpenRouter tell it: signatures at calls, and details."""
    calls = [
        {"id": f"o{number}{w}", "function": {"name": "f", "arguments": json.dumps({"n": number})}}
        for w in "xy"
    ]
    calls[0]["extra_content"] = {"google": {"thought_signature": f"sig{number}"}}
    details = [{"type": "reasoning.encrypted", "data": f"detail{number}", "id": f"o{number}x"}]
    message = {"content": text, "reasoning_details": details, "tool_calls": calls}
    return openai_wire.read_openai_reply({"choices": [{"message": message}]}).message


@settings(max_examples=EXAMPLES, deadline=None)
@given(HISTORIES)
def test_fields_of_chat_completions_go_back_with_their_turn_and_at_their_call(
    plan: list[tuple[str, str]],
) -> None:
    turns = [gateway_turn(number, text) for number, (_, text) in enumerate(plan)]
    messages = rewritten(turns, [way for way, _ in plan])
    wires = openai_wire.build_openai_messages(messages, "system")
    signed = "extra_content" in json.dumps(wires)
    for (way, _), wire in zip(
        [one for one in plan if one[0] != "drop the turn"],
        [wire for wire in wires if wire["role"] == "assistant"],
        strict=True,
    ):
        rebuilt = way in ("rebuild", "make up a call")
        assert ("reasoning_details" in wire) != rebuilt
        for call in wire.get("tool_calls", ()):
            own = call["id"].startswith("o") and call["id"].endswith("x") and not rebuilt
            mark = call.get("extra_content", {}).get("google", {}).get("thought_signature", "")
            assert mark.startswith("sig") == own
        if signed and wire.get("tool_calls"):  # Gemini wants one in each turn
            assert "extra_content" in json.dumps(wire)


@pytest.mark.parametrize("signature", [{}, {"signature": ""}, {"signature": "s1"}])
def test_thinking_blocks_go_back_as_they_came_signed_or_not(signature: dict[str, str]) -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "hm", **signature},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]
    body = {"type": "message", "content": content, "stop_reason": "tool_use"}
    message = anthropic.read_anthropic_reply(body).message
    assert anthropic.build_anthropic_messages([message])[0]["content"] == content


def test_litellms_blocks_of_anthropic_go_back_as_they_came() -> None:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s1"}]
    call = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"content": None, "thinking_blocks": blocks, "tool_calls": [call]}
    reply = openai_wire.read_openai_reply({"choices": [{"message": message}]}).message
    (wire,) = openai_wire.build_openai_messages([reply], "system")
    assert wire == {"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": blocks}


def test_thoughts_of_one_vendor_are_never_sent_to_another() -> None:
    unsigned = {
        "type": "message",
        "content": [{"type": "thinking", "thinking": "mine"}, {"type": "text", "text": "A"}],
    }
    messages = [user("u"), responses_turn(0, "I look."), anthropic_turn(1, "So."), deepseek_turn(2, "Then.")]
    messages += [gateway_turn(3, "At last."), anthropic.read_anthropic_reply(unsigned).message]
    opaque = ("encrypted_content", "openai:", "sig1", "zz", "hm 2")
    others = {
        "responses": ("sig1", "zz", "hm 2", "sig3", "detail3", "mine"),
        "anthropic": ("encrypted_content", "openai:", "hm 2", "sig3", "detail3"),
        "chat": (*opaque[:4], "mine"),
    }
    sent = {
        "responses": openai.build_responses_items(messages, "system"),
        "anthropic": anthropic.build_anthropic_messages(messages),
        "chat": openai_wire.build_openai_messages(messages, "system", "reasoning_content"),
    }
    for vendor, marks in others.items():
        text = json.dumps(sent[vendor])
        assert not [mark for mark in marks if mark in text], vendor
    assert not [mark for mark in opaque if mark in json.dumps(google.build_gemini_contents(messages, {}))]
    assert "sig3" not in json.dumps(google.build_gemini_contents(messages, {}))


@pytest.fixture
def model() -> AnthropicModel:
    return AnthropicModel("m", "m-1", None, max_tokens=100, base_url="http://127.0.0.1:9")


def body(model: AnthropicModel, request: ChatRequest) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(model._build_body(request))
    return sent


def test_past_calls_bring_stand_ins_that_may_not_be_called(model: AnthropicModel) -> None:
    call = FunctionCall(function="pay", args={"to": "Bob"}, id="1")
    result: Any = {"role": "tool", "content": None, "tool_call": call, "tool_call_id": "1", "error": None}
    messages = [system("Rules."), user("Pay."), assistant("Paying.", [call, call]), result, result]
    sent = body(model, ChatRequest(messages))
    assert sent["tools"] == [{"name": "pay", "input_schema": {"type": "object"}}]
    assert sent["tool_choice"] == {"type": "none"}


def test_a_request_without_tools_or_calls_is_sent_without_tools(model: AnthropicModel) -> None:
    assert not {"tools", "tool_choice"} & set(body(model, ChatRequest([user("Hello.")])))
