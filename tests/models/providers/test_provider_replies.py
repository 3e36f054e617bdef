"""Odd answers of servers, as each adapter reads them, and which kind an error becomes."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from providers_under_test import PROVIDERS, answering, model_at

from agentsys.errors import ConfigError
from agentsys.models.build_model import pick_reply_identity
from agentsys.models.chat import (
    ChatRequest,
    ErrorKind,
    ModelError,
    ToolSpec,
    Usage,
    assistant,
    system,
    text_of,
    user,
)
from agentsys.models.providers.anthropic import AnthropicModel, build_anthropic_messages
from agentsys.models.providers.google import GoogleModel, build_gemini_contents
from agentsys.models.providers.openai import OpenAIModel
from agentsys.models.providers.sdk_errors import (
    classify_error,
    make_http_error,
    parse_retry_after_s,
    translate_error,
)
from agentsys.models.providers.wire_parts import parse_json
from agentsys.models.wrappers.reply_cache import RequestKeys

ASK = ChatRequest([user("Hi")])


def _error(vendor: str, status: int, body: object, **headers: str) -> ModelError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with answering(status, raw, **headers) as server, pytest.raises(ModelError) as caught:
        model_at(vendor, server.base_url).complete(ASK)
    assert server.requests == 1
    return caught.value


_CALLS: list[Any] = [True, [5, None], [{"id": "c", "function": {}}], [{"function": {"name": ["a"]}}]]
NO_REPLIES: list[Any] = [
    *({}, [], {"content": "x"}, {"content": True}, None, "x"),
    *({"choices": choices} for choices in ([], {}, [{}], [None], [{"message": []}])),
    *({"choices": [{"message": {"tool_calls": calls}}]} for calls in _CALLS),
    *({"content": [{"type": "tool_use", "id": "t", **more}]} for more in ({}, {"name": "f", "input": [1]})),
    *({"candidates": candidates} for candidates in ([], {}, [{"finishReason": "MALFORMED_FUNCTION_CALL"}])),
    *({"candidates": [{"content": {"parts": parts}}]} for parts in (5, [{"functionCall": 5}])),
]


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_json_that_is_no_reply_is_malformed(vendor: str) -> None:
    with answering(200, b"") as server:
        model = model_at(vendor, server.base_url)
        for body in NO_REPLIES:
            server.body = json.dumps(body).encode()
            with pytest.raises(ModelError) as caught:
                model.complete(ASK)
            assert caught.value.kind is ErrorKind.MALFORMED_REPLY, body
        assert server.requests == len(NO_REPLIES)


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_refused_key_ends_the_run_and_is_not_quoted(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-very-secret-123")
    body = {"error": {"message": "Incorrect API key provided: sk-very-secret-123", "code": "invalid_api_key"}}
    for status in (401, 403):
        with answering(status, json.dumps(body).encode()) as server, pytest.raises(ModelError) as caught:
            model_at(vendor, server.base_url, "A_KEY").complete(ASK)
        assert caught.value.kind is ErrorKind.BAD_KEY
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "settings", "field"),
    [
        ("GOOGLE_GEMINI_BASE_URL", {}, "base_url"),
        ("GOOGLE_VERTEX_BASE_URL", {"vertexai": True}, "base_url"),
        ("GOOGLE_GENAI_API_VERSION", {}, "api_version"),
    ],
)
def test_no_variable_chooses_who_answers_for_gemini(
    monkeypatch: pytest.MonkeyPatch, variable: str, settings: dict[str, Any], field: str
) -> None:
    monkeypatch.setenv("A_KEY", "sk-1")
    monkeypatch.setenv(variable, "http://user:secret@127.0.0.1:1")
    key = None if settings else "A_KEY"
    with pytest.raises(ConfigError, match=f"{variable} decides .* model.{field}=.*{variable}") as told:
        GoogleModel("m", "gemini-2.5-flash", key, **settings)
    assert "secret" not in str(told.value)
    GoogleModel("m", "gemini-2.5-flash", "A_KEY", base_url="http://127.0.0.1:1", api_version="v1beta")


def test_no_variable_chooses_who_answers_for_openai_and_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setenv("A_KEY", "sk-1")
    models = OpenAIModel("m", "gpt-4o", "A_KEY"), AnthropicModel("m", "claude", "A_KEY", max_tokens=10)
    hosts = [model._client.base_url.host for model in models]
    assert hosts == ["api.openai.com", "api.anthropic.com"]


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_missing_key_is_one_line_that_names_the_variable(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^Model 'm' needs the variable NO_SUCH_KEY: export NO_SUCH_KEY="):
        model_at(vendor, "http://127.0.0.1:9", "NO_SUCH_KEY")


def test_vertex_needs_its_project_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROJECT", raising=False)
    with pytest.raises(ConfigError, match="PROJECT"):
        GoogleModel("m", "m", "UNSET_KEY", vertexai=True, project_env="PROJECT", location_env="PLACE")


def test_openai_usage_has_cached_and_reasoning_tokens_and_a_refusal_is_text() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    body = {"choices": [{"message": {"content": None, "refusal": "I will not."}}], "usage": usage}
    with answering(200, json.dumps(body).encode()) as server:
        reply = model_at("openai", server.base_url).complete(ASK)
    assert reply.usage == Usage(prompt=10, completion=8, cached=4, reasoning=5)
    assert text_of(reply.message) == "I will not."


def test_openai_error_under_status_200_is_an_error() -> None:
    for code, kind in ((429, ErrorKind.RATE_LIMITED), (10**30, ErrorKind.SERVER_ERROR)):
        assert _error("openai", 200, {"error": {"code": code, "message": "slow down"}}).kind is kind


@pytest.mark.parametrize("arguments", ["[1]", "{", '"x"', "[" * 100_000, "9" * 5000])
def test_openai_arguments_that_are_no_object_are_malformed(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    assert _error("openai", 200, body).kind is ErrorKind.MALFORMED_REPLY


def test_openai_blank_arguments_are_no_arguments_and_lone_surrogates_are_replaced() -> None:
    def call(arguments: str) -> dict[str, Any]:
        return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}

    body = {
        "choices": [{"message": {"content": "\ud800!", "tool_calls": [call(""), call('{"a": "\\ud83d"}')]}}]
    }
    with answering(200, json.dumps(body).encode()) as server:
        message = model_at("openai", server.base_url).complete(ASK).message
    assert text_of(message) == "?!"
    assert [call.args for call in message["tool_calls"] or []] == [{}, {"a": "?"}]


def test_anthropic_usage_counts_cached_input_and_thinking_goes_back_signed() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 2,
        "output_tokens": 3,
    }
    body = {"type": "message", "content": content, "usage": usage, "stop_reason": "tool_use", "model": "c"}
    with answering(200, json.dumps(body).encode()) as server:
        reply = model_at("anthropic", server.base_url).complete(ASK)
    assert reply.usage == Usage(prompt=14, completion=3, cached=7, written=2)
    assert build_anthropic_messages([reply.message])[0]["content"] == content


def test_google_thoughts_count_as_completion_and_signatures_go_back() -> None:
    parts = [
        {"text": "secret thought", "thought": True},
        {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
    ]
    usage = {
        "promptTokenCount": 9,
        "candidatesTokenCount": 2,
        "thoughtsTokenCount": 6,
        "cachedContentTokenCount": 3,
    }
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}], "usageMetadata": usage}
    with answering(200, json.dumps(body).encode()) as server:
        model = model_at("google", server.base_url)
        reply = model.complete(ASK)
    assert isinstance(model, GoogleModel)
    assert reply.usage == Usage(prompt=9, completion=8, cached=3, reasoning=6)
    assert reply.message["content"] == []
    call = (reply.message["tool_calls"] or [])[0]
    assert call.id
    sent_back = model._build_body(ChatRequest([user("Hi"), reply.message]))["contents"][1]["parts"]
    assert sent_back == parts[1:]
    fresh = model_at("google", "http://127.0.0.1:9")
    assert isinstance(fresh, GoogleModel)
    fresh.restore(model.keepsake(reply))
    assert fresh._build_body(ChatRequest([user("Hi"), reply.message]))["contents"][1]["parts"] == parts[1:]


@pytest.mark.parametrize(
    ("vendor", "body"),
    [
        ("google", {"promptFeedback": {"blockReason": "SAFETY"}}),
        ("google", {"candidates": [{"finishReason": "PROHIBITED_CONTENT"}]}),
        ("google", {"candidates": [{"finishReason": "SAFETY"}]}),
        ("openai", {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}),
        ("anthropic", {"type": "message", "content": [], "stop_reason": "refusal"}),
    ],
)
def test_blocked_prompts_and_replies_are_refusals(vendor: str, body: dict[str, Any]) -> None:
    assert _error(vendor, 200, body).kind is ErrorKind.CONTENT_REFUSED


def test_google_results_of_one_turn_stand_in_one_content() -> None:
    first, second = (FunctionCall(function=name, args={}, id=f"agentsys-{name}") for name in "ab")
    results: list[Any] = [
        {"role": "tool", "content": [], "tool_call": call, "tool_call_id": call.id, "error": None}
        for call in (first, second)
    ]
    contents = build_gemini_contents([user("x"), assistant(None, [first, second]), *results], {})
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[2]["parts"] == [
        {"functionResponse": {"name": name, "response": {"output": ""}}} for name in "ab"
    ]


@pytest.mark.parametrize(
    "text",
    ['"\\ud800"', b'"\\ud800"', '"\\ud800"'.encode("utf-16-le"), '"\ud800"'.encode("utf-8", "surrogatepass")],
)
def test_half_a_surrogate_pair_is_replaced_however_it_is_written(text: str | bytes) -> None:
    assert parse_json(text) == "?"


def test_json_of_a_hundred_levels_is_read_and_no_deeper() -> None:
    assert parse_json(b"[" * 100 + b"]" * 100)
    with pytest.raises(ModelError, match="more than 100 deep"):
        parse_json(b"[" * 101 + b"]" * 101)


SCHEMA = {
    "type": "object",
    "properties": {"allow": {"type": "boolean"}},
    "required": ["allow"],
    "additionalProperties": False,
}
OPEN_SCHEMA = {"type": "object", "properties": {"allow": {"type": "boolean"}}}
MESSAGE = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "model": "m"}
COMPLETION = {"choices": [{"message": {"role": "assistant", "content": "Hi"}}], "model": "m"}
BRIEF = ChatRequest([system("Be brief."), user("Hi")])


def sent(vendor: str, request: ChatRequest, **more: Any) -> dict[str, Any]:
    """The body that a vendor's model posts."""
    reply = MESSAGE if vendor == "anthropic" else COMPLETION
    with answering(200, json.dumps(reply).encode()) as server:
        model_at(vendor, server.base_url, **more).complete(request)
        body: dict[str, Any] = json.loads(server.last)
    return body


def test_anthropic_is_held_to_a_schema_where_its_file_says_structured() -> None:
    asked = ChatRequest([user("Hi")], reply_schema=SCHEMA)
    body = sent("anthropic", asked, structured=True, effort="low")
    wanted = {"type": "json_schema", "schema": SCHEMA}
    assert body["output_config"] == {"effort": "low", "format": wanted}
    assert "output_config" not in sent("anthropic", asked)
    # The vendor takes closed schemas alone.
    open_one = ChatRequest([user("Hi")], reply_schema=OPEN_SCHEMA)
    assert "output_config" not in sent("anthropic", open_one, structured=True)
    assert "output_config" not in sent("anthropic", BRIEF, structured=True)


def test_openais_requests_say_which_conversation_they_belong_to() -> None:
    later = ChatRequest([*BRIEF.messages, assistant("Hello"), user("And now?")])
    other = ChatRequest([system("Be brief."), user("Bye")])
    tools = ChatRequest(BRIEF.messages, tools=[ToolSpec("t", "", {"type": "object", "properties": {}})])
    keys = [
        sent("openai", one, prompt_cache=True)["prompt_cache_key"] for one in (BRIEF, later, other, tools)
    ]
    assert keys[0] == keys[1] and len(set(keys)) == 3 and all(len(key) <= 64 for key in keys)
    assert "prompt_cache_key" not in sent("openai", BRIEF)


OPENAI = {"_target_": "agentsys.models.providers.openai.OpenAIModel", "name": "m", "model_id": "m-1"}
ANTHROPIC = {"_target_": "agentsys.models.providers.anthropic.AnthropicModel", "name": "m", "model_id": "m-1"}
GOOGLE = {"_target_": "agentsys.models.providers.google.GoogleModel", "name": "m", "model_id": "m-1"}
THINKING: list[tuple[str, list[dict[str, Any]]]] = [
    (
        "openai",
        [
            OPENAI | more
            for more in (
                {"reasoning_effort": None},
                {"reasoning_effort": "none"},
                {"reasoning_effort": "low"},
                {"reasoning_effort": "high"},
                {"reasoning_effort": "high", "api": "responses"},
                {"reasoning_effort": "high", "api": "responses", "reasoning_summary": "auto"},
                {"reasoning_field": "reasoning_content"},
                {"strip_think": True},
                {"extra_body": {"thinking": {"type": "enabled"}}},
                {"extra_body": {"thinking": {"type": "disabled"}}},
                {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
                {"temperature": 0.0},
                {"temperature": None},
            )
        ],
    ),
    (
        "anthropic",
        [
            ANTHROPIC | more
            for more in (
                {"thinking": None},
                {"thinking": "disabled"},
                {"thinking": "adaptive"},
                {"thinking": "adaptive", "effort": "low"},
                {"thinking": "adaptive", "effort": "max"},
                {"thinking_budget": 2000},
                {"thinking_budget": 8000},
            )
        ],
    ),
    (
        "google",
        [
            GOOGLE | more
            for more in (
                {"thinking_budget": -1},
                {"thinking_budget": 0},
                {"thinking_level": "low"},
                {"thinking_level": "high"},
            )
        ],
    ),
]


def key_of(node: dict[str, Any]) -> str:
    with RequestKeys(pick_reply_identity(node)).take_key(BRIEF) as (key, _):
        return key


@pytest.mark.parametrize(("vendor", "nodes"), THINKING)
def test_two_efforts_or_ways_to_think_never_share_a_reply(vendor: str, nodes: list[dict[str, Any]]) -> None:
    keys = [key_of(node) for node in nodes]
    same = [pair for pair in combinations(range(len(nodes)), 2) if keys[pair[0]] == keys[pair[1]]]
    assert not same, [(nodes[a], nodes[b]) for a, b in same]


@pytest.mark.parametrize("more", [{"prompt_cache": True}, {"price": {"prompt": 1}}])
def test_what_only_changes_the_price_shares_replies(more: dict[str, Any]) -> None:
    assert key_of(OPENAI) == key_of(OPENAI | more)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "This model's maximum context length is 128000 tokens", ErrorKind.CONTEXT_LENGTH),
        (400, "context_length_exceeded", ErrorKind.CONTEXT_LENGTH),
        (400, "prompt is too long: 208310 tokens > 200000 maximum", ErrorKind.CONTEXT_LENGTH),
        (
            400,
            "The input token count (1) exceeds the maximum number of tokens allowed",
            ErrorKind.CONTEXT_LENGTH,
        ),
        (413, "request_too_large", ErrorKind.TOO_LARGE),
        (400, "exceed_context_size_error", ErrorKind.CONTEXT_LENGTH),
        (400, "the request exceeds the available context size, try increasing it", ErrorKind.CONTEXT_LENGTH),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096.", ErrorKind.CONTEXT_LENGTH),
        (400, "content_filter triggered", ErrorKind.CONTENT_REFUSED),
        (400, "Output blocked by content filtering policy", ErrorKind.CONTENT_REFUSED),
        (400, "invalid_prompt", ErrorKind.CONTENT_REFUSED),
        (400, "your prompt was flagged as potentially violating our usage policy", ErrorKind.CONTENT_REFUSED),
        (400, "Your request was rejected as a result of our safety system.", ErrorKind.CONTENT_REFUSED),
        (400, "content_policy_violation", ErrorKind.CONTENT_REFUSED),
        (403, "The request violates our usage policies.", ErrorKind.CONTENT_REFUSED),
        (400, "The content of messages.1 is invalid", ErrorKind.BAD_REQUEST),
        (400, "Too many tokens, please wait before trying again.", ErrorKind.RATE_LIMITED),
        (307, "", ErrorKind.BAD_REQUEST),
        (399, "", ErrorKind.BAD_REQUEST),
        (101, "", ErrorKind.SERVER_ERROR),
        (999, "", ErrorKind.SERVER_ERROR),
        (400, "API key not valid. Please pass a valid API key.", ErrorKind.BAD_KEY),
        (400, "Your credit balance is too low to access the Anthropic API", ErrorKind.NO_CREDIT),
        (429, "insufficient_quota", ErrorKind.NO_CREDIT),
        (429, "You exceeded your current quota, check your plan", ErrorKind.RATE_LIMITED),
        (400, "Unknown parameter", ErrorKind.BAD_REQUEST),
        (401, "", ErrorKind.BAD_KEY),
        (402, "", ErrorKind.NO_CREDIT),
        (403, "", ErrorKind.FORBIDDEN),
        (404, "", ErrorKind.UNKNOWN_MODEL),
        (400, "model_not_found", ErrorKind.UNKNOWN_MODEL),
        (408, "", ErrorKind.TIMEOUT),
        (429, "", ErrorKind.RATE_LIMITED),
        (500, "context length", ErrorKind.SERVER_ERROR),
        (500, "overloaded_error", ErrorKind.OVERLOADED),
        (502, "", ErrorKind.SERVER_ERROR),
        (503, "", ErrorKind.OVERLOADED),
        (504, "", ErrorKind.TIMEOUT),
        (529, "", ErrorKind.OVERLOADED),
    ],
)
def test_status_and_wording_decide_the_kind(status: int, body: str, kind: ErrorKind) -> None:
    assert classify_error(status, body) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "inf"}, None),
        *(({"retry-after": text}, None) for text in ("soon", "nan", "9" * 400, "0x10")),
        ({"retry-after-ms": "1e400"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str] | None, seconds: float | None) -> None:
    assert parse_retry_after_s(headers, now=60.0) == seconds


def test_messages_are_one_bounded_line() -> None:
    found = make_http_error(400, {"error": {"message": "a\nb" + "x" * 5000}}, None, None)
    assert "\n" not in str(found)
    assert len(str(found)) < 400


def test_a_message_is_fit_to_be_stored_and_names_no_password() -> None:
    found = str(make_http_error(400, {"error": "\ud800 see http://me:secret@host/v1"}, None, None))
    assert found.encode()
    assert "http://***@host/v1" in found


def test_fastapis_errors_keep_what_they_say() -> None:
    body = {"detail": [{"loc": ["body", "tools"], "msg": "Field required"}, 5]}
    assert "['body', 'tools']: Field required" in str(make_http_error(422, body, None, None))


def test_our_own_error_is_found_below_an_sdks() -> None:
    class APIConnectionError(Exception):
        pass

    ours = ModelError(ErrorKind.TIMEOUT, "late")
    theirs = APIConnectionError("Connection error.")
    theirs.__cause__ = ours
    assert translate_error(theirs) is ours


def test_a_bug_is_no_model_error() -> None:
    assert translate_error(KeyError("x")) is None
    assert translate_error(TypeError("x")) is None
