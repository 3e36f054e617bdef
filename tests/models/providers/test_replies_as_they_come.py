"""Replies as servers really send them: in parts, cut, without a count, with thoughts beside the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from providers_under_test import answering, model_at

from agentsys.errors import ConfigError
from agentsys.models.chat import (
    UNCOUNTED,
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    Usage,
    assistant,
    text_of,
    user,
)
from agentsys.models.pricing import Price
from agentsys.models.providers.openai_wire import ReplyText, split_think_tag

ASK = ChatRequest([user("Hi")])
PRICE = Price.model_validate({"prompt": 1.0, "completion": 2.0, "as_of": "2026-01-01"})
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
COUNTED = {"prompt_tokens": 10, "completion_tokens": 4}


def chat(message: Any, usage: Any = COUNTED, finish: str = "stop") -> dict[str, Any]:
    body = {"model": "m", "choices": [{"message": message, "finish_reason": finish}]}
    return body if usage is None else {**body, "usage": usage}


def answered(body: Any, vendor: str = "openai", request: ChatRequest = ASK, **options: Any) -> ChatReply:
    with answering(200, json.dumps(body).encode()) as server:
        reply = model_at(vendor, server.base_url, price=PRICE, **options).complete(request)
    assert server.requests == 1
    return reply


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"text": "a"}, "b", 5, None, {"type": "image_url"}], "ab"),
        ([{"type": "output_text", "text": "ab"}], "ab"),
        ({"type": "text", "text": "ab"}, "ab"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}, {"text": "ab"}], "ab"),
    ],
)  # fmt: skip
def test_content_in_parts_is_joined(content: Any, said: str) -> None:
    assert text_of(answered(chat({"content": content})).message) == said


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        True,
        {"prompt_tokens": "9", "completion_tokens": 1},
        {"prompt_tokens": 9},
        {"prompt_tokens": 9, "completion_tokens": -5},
        {"prompt_tokens": True, "completion_tokens": True},
        {"prompt_tokens": 0, "completion_tokens": 0},
    ],
)
def test_a_missing_or_malformed_count_is_unknown_and_so_is_its_cost(usage: Any) -> None:
    reply = answered(chat({"content": "x"}, usage))
    assert (reply.usage, reply.cost_usd) == (UNCOUNTED, None)


CUT = {
    "openai": chat({"content": "The answer is"}, finish="length"),
    "anthropic": {
        "type": "message",
        "content": [{"type": "text", "text": "The answer is"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 10, "output_tokens": 4},
    },
    "google": {
        "candidates": [{"content": {"parts": [{"text": "The answer is"}]}, "finishReason": "MAX_TOKENS"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4},
    },
}


@pytest.mark.parametrize("vendor", CUT)
@pytest.mark.parametrize("asked", [None, 4])
def test_a_cut_reply_is_what_the_model_said_and_tells_that_it_was_cut(vendor: str, asked: int | None) -> None:
    reply = answered(CUT[vendor], vendor, ChatRequest([user("Hi")], max_tokens=asked))
    assert (text_of(reply.message), reply.cut, reply.attempts) == ("The answer is", True, 1)
    assert (reply.usage, reply.cost_usd) == (Usage(10, 4), pytest.approx(18e-6))
    assert reply.notes == ("a reply ended at the bound on its tokens",)


def test_cut_arguments_are_no_call_and_not_asked_for_again() -> None:
    half = {**CALL, "function": {"name": "f", "arguments": '{"a": "lo'}}
    reply = answered(chat({"content": "So", "tool_calls": [half, CALL]}, finish="length"))
    assert [call.args for call in reply.message["tool_calls"] or ()] == [{"a": 1}]
    assert (text_of(reply.message), reply.cut) == ("So", True)
    with pytest.raises(ModelError) as caught:
        answered(chat({"content": None, "tool_calls": [half]}, finish="stop"))
    assert caught.value.kind is ErrorKind.MALFORMED_REPLY


def test_a_context_that_is_full_cuts_the_reply() -> None:
    reply = answered(CUT["anthropic"] | {"stop_reason": "model_context_window_exceeded"}, "anthropic")
    assert (reply.cut, reply.reason) == (True, "model_context_window_exceeded")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_beside_the_content_are_read_and_are_no_part_of_the_answer(field: str) -> None:
    reply = answered(chat({"content": "Done.", field: "hm"}))
    assert text_of(reply.message) == "Done."
    assert reply.message["content"] == [
        {"type": "thinking", "content": "hm", "id": None},
        {"type": "text", "content": "Done."},
    ]


def sent_back(**options: Any) -> dict[str, Any]:
    """The assistant message of the second request, after a reply with thoughts and a call."""
    with answering(
        200, json.dumps(chat({"reasoning_content": "hm", "tool_calls": [CALL]})).encode()
    ) as server:
        model = model_at("openai", server.base_url, **options)
        first = model.complete(ASK).message
        result: Any = {
            "role": "tool", "content": [], "tool_call": first["tool_calls"][0],  # type: ignore[index]
            "tool_call_id": "c", "error": None,
        }  # fmt: skip
        rebuilt = assistant(None, first["tool_calls"])
        model.complete(ChatRequest([user("Hi"), first, result, rebuilt, result]))
        messages = json.loads(server.last)["messages"]
    assert messages[3].get("reasoning_content", "absent") == ("" if options else "absent")
    found: dict[str, Any] = messages[1]
    return found


def test_thoughts_go_back_with_their_calls_where_the_server_wants_them_and_empty_ones_too() -> None:
    assert sent_back(reasoning_field="reasoning_content")["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    ("text", "answer", "thoughts"),
    [
        ("<think>hm</think>\n\nDone.", "Done.", "hm"),
        ("\n<think>\nhm\n</think>Done.", "Done.", "hm"),
        ("hm\n</think>\n\nDone.", "Done.", "hm"),
        ("<think>hm and no end", "", "hm and no end"),
        ("Done.", "Done.", ""),
        ("Say <think> and go on", "Say <think> and go on", ""),
    ],
)
def test_thoughts_left_in_the_text_can_be_taken_out(text: str, answer: str, thoughts: str) -> None:
    assert split_think_tag(ReplyText(text)) == ReplyText(answer, thoughts)
    kept, stripped = (answered(chat({"content": text}), strip_think=on).message for on in (False, True))
    assert (text_of(kept), text_of(stripped)) == (text, answer)


@pytest.mark.parametrize(
    ("vendor", "message", "mend"),
    [
        ("anthropic", "`temperature` is deprecated for this model.", "model.temperature=null"),
        (
            "openai",
            "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) "
            "value is supported.",
            "model.temperature=null",
        ),
        (
            "openai",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "model.max_tokens_field=max_completion_tokens",
        ),
        (
            "openai",
            "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. "
            "Please use /v1/responses instead.",
            "model.api=responses",
        ),
        (
            "anthropic",
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.',
            "model.thinking=adaptive model.thinking_budget=null",
        ),
    ],
)
def test_a_refused_setting_is_a_config_error_that_names_the_yamls_field(
    vendor: str, message: str, mend: str
) -> None:
    body = json.dumps({"error": {"type": "invalid_request_error", "message": message}}).encode()
    with answering(400, body) as server, pytest.raises(ConfigError) as caught:
        model_at(vendor, server.base_url).complete(ASK)
    assert str(caught.value).endswith(f"; set {mend}")
    assert server.requests == 1


def test_a_context_that_overflows_in_llama_cpp_is_told_under_400_and_under_500() -> None:
    text = "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"
    for status in (400, 500):
        body = json.dumps({"error": {"code": status, "message": text, "type": "exceed_context_size_error"}})
        with answering(status, body.encode()) as server, pytest.raises(ModelError) as caught:
            model_at("openai", server.base_url).complete(ASK)
        assert caught.value.kind is ErrorKind.CONTEXT_LENGTH


def test_tokens_read_from_and_written_to_a_cache_have_prices_of_their_own() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 100,
        "output_tokens": 5,
    }
    body = {"type": "message", "content": [{"type": "text", "text": "x"}], "usage": usage}
    price = Price.model_validate(
        {"prompt": 1.0, "cached": 0.1, "written": 1.25, "completion": 2.0, "as_of": "2026-01-01"}
    )
    with answering(200, json.dumps(body).encode()) as server:
        reply = model_at("anthropic", server.base_url, price=price, prompt_cache=True).complete(ASK)
        asked = json.loads(server.last)
        model_at("anthropic", server.base_url).complete(ASK)
        plain = json.loads(server.last)
    assert reply.usage == Usage(1110, 5, 1000, written=100)
    assert reply.cost_usd == pytest.approx((10 + 100 + 125 + 10) / 1e6)
    assert asked["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in plain


OTHERS = [{"token": "true", "logprob": -0.1}, {"token": "false", "logprob": -2}]
TOLD = [
    {"token": "true", "logprob": -0.1, "top_logprobs": OTHERS},
    {"token": "}", "logprob": 0, "top_logprobs": []},
]


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({"content": TOLD}, ({"true": -0.1, "false": -2.0}, {"}": 0.0})),
        ({"content": [{"token": "a", "logprob": "x", "top_logprobs": 5}, 7]}, ({}, {})),
        (None, ()),
        ([], ()),
        ({"content": None}, ()),
    ],
)
def test_log_probabilities_are_asked_for_and_read_where_a_server_tells_them(told: Any, read: Any) -> None:
    body = chat({"content": "true}"})
    body["choices"][0]["logprobs"] = told
    with answering(200, json.dumps(body).encode()) as server:
        model = model_at("openai", server.base_url, price=PRICE)
        reply = model.complete(replace(ASK, logprobs=5))
        asked = json.loads(server.last)
        model.complete(ASK)
        plain = json.loads(server.last)
    assert reply.logprobs == read
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 5) and "logprobs" not in plain
