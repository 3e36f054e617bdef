"""What is made of errors: bodies before statuses, words of servers without secrets, settings with their mend.

Most of it is in the corpus of wires; here is what one reply alone does not show.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from providers_under_test import answering, model_at

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatRequest, Consequence, ErrorKind, ModelError, user
from agentsys.models.providers.sdk_errors import (
    classify_error,
    make_embedded_error,
    make_http_error,
    make_refused_setting_error,
)

ASK = ChatRequest([user("Hi")])
FATAL_WORDS = ["insufficient_quota", "invalid_api_key", "model_not_found", "content_filter", "context_length"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(FATAL_WORDS) | st.text(max_size=20), max_size=4).map(" ".join))
def test_what_a_server_quotes_of_a_model_or_a_user_decides_nothing(quoted: str) -> None:
    groq = {
        "error": {
            "message": "Failed to call a function.",
            "code": "tool_use_failed",
            "failed_generation": quoted,
        }
    }
    fastapi = {"detail": [{"loc": ["body", "tools"], "msg": "Field required", "input": quoted}]}
    flagged = {"error": {"message": "Bad.", "metadata": {"messages": [{"content": quoted}]}}}
    assert make_http_error(400, groq, None, None).kind is ErrorKind.MALFORMED_REPLY
    assert make_http_error(422, fastapi, None, None).kind is ErrorKind.BAD_REQUEST
    assert make_http_error(400, flagged, None, None).kind is ErrorKind.BAD_REQUEST


@pytest.mark.parametrize("status", [400, 403, 404, 413, 429, 500, 503])
def test_the_words_of_a_web_page_decide_nothing(status: int) -> None:
    page = f"<html><head><title>A &amp; B</title></head><body>{' '.join(FATAL_WORDS)}</body></html>"
    assert classify_error(status, page) is classify_error(status, "")
    assert "a web page, 'A & B'" in str(make_http_error(status, page, None, None))


@pytest.mark.parametrize("status", [400, 402, 403, 409, 412, 429, 500, 503])
def test_an_empty_account_ends_the_run_under_any_status(status: int) -> None:
    body = {"error": {"message": "Insufficient balance, please recharge.", "code": "1113"}}
    assert make_http_error(status, body, None, None).kind.consequence is Consequence.END_RUN


@pytest.mark.parametrize(
    ("limit", "requested", "kind"),
    [("6,000", "9,000", ErrorKind.TOO_LARGE), ("30000", "4000", ErrorKind.RATE_LIMITED)],
)
def test_a_request_never_fits_if_it_alone_is_above_the_limit(
    limit: str, requested: str, kind: ErrorKind
) -> None:
    text = f"Rate limit reached on tokens per min (TPM): Limit {limit}, Used 29000, Requested {requested}."
    for status in (400, 413, 429):
        found = make_http_error(status, {"error": {"message": text}}, None, None).kind
        assert found is (ErrorKind.TOO_LARGE if status == 413 and kind is ErrorKind.TOO_LARGE else found)
        if status == 429:
            assert found is kind


@pytest.mark.parametrize(
    "secret",
    [
        "sk-or-v1-0123456789abcdef0123",
        "gsk_0123456789abcdefghij",
        "AIzaSyA0123456789abcdefghijklmnop",
        "sk-ab*********wxyz1234",
        "xai-0123456789abcdef",
    ],
)
def test_keys_of_others_stay_out_of_every_text(secret: str) -> None:
    behind = {"error": {"message": "Provider returned error", "metadata": {"raw": f"key {secret} refused"}}}
    told = [
        make_http_error(status, body, None, "sk-mine-0123456789")
        for status in (400, 403, 429, 502)
        for body in (behind, f"upstream: Bearer {secret}", {"msg": f"https://host/v1?key={secret}"})
    ]
    assert not [str(error) for error in told if secret in str(error)]
    assert "refused" in str(told[0])


def test_the_words_of_a_provider_behind_a_gateway_are_told() -> None:
    raw = json.dumps({"error": {"message": "tools[3].name: too long"}})
    behind = {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": raw, "provider_name": "X"},
        }
    }
    assert "X" in str(make_http_error(400, behind, None, None))
    assert "tools[3].name: too long" in str(make_http_error(400, behind, None, None))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"code": 500, "msg": "internal"}, ErrorKind.SERVER_ERROR),
        ({"code": "InvalidParameter", "message": "no such field"}, ErrorKind.BAD_REQUEST),
        ({"error": {"code": "429", "message": "later"}}, ErrorKind.RATE_LIMITED),
        ({"error": {"type": "authentication_error", "message": "no"}}, ErrorKind.BAD_KEY),
        ({"error": "the model is overloaded"}, ErrorKind.OVERLOADED),
        ([{"error": {"code": 403, "status": "PERMISSION_DENIED"}}], ErrorKind.FORBIDDEN),
        ({"base_resp": {"status_code": 1039, "status_msg": "requests per minute"}}, ErrorKind.RATE_LIMITED),
    ],
)
def test_an_error_in_place_of_a_reply_has_its_own_kind(body: object, kind: ErrorKind) -> None:
    assert make_embedded_error(body, None).kind is kind


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        (
            "litellm.UnsupportedParamsError: O-series models don't support temperature=0.0.",
            "temperature=null",
        ),
        ("Unsupported value: 'temperature' does not support 0.0 with this model.", "temperature=null"),
        ("invalid temperature: only 1 is allowed for this model", "temperature=null"),
        (
            "The reasoning_content in the thinking mode must be passed back to the API.",
            "reasoning_field=reasoning_content",
        ),
        (
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
            "reasoning_field=reasoning_content",
        ),
    ],
)
def test_a_setting_that_a_model_refuses_is_named(said: str, mend: str) -> None:
    refused = make_refused_setting_error("m", ModelError(ErrorKind.BAD_REQUEST, said))
    assert isinstance(refused, ConfigError) and f"set model.{mend}" in str(refused)


def test_a_model_says_what_refused_it_and_not_that_its_key_was() -> None:
    body = json.dumps({"error": {"message": "Country, region, or territory not supported"}}).encode()
    with answering(403, body) as server, pytest.raises(ModelError) as caught:
        model_at("openai", server.base_url).complete(ASK)
    assert caught.value.kind.consequence is Consequence.END_CELL
    assert "Country, region, or territory not supported" in str(caught.value)
