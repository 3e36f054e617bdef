"""Which kind an error becomes."""

from __future__ import annotations

import pytest

from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.providers.sdk_errors import (
    classify_error,
    http_error,
    parse_retry_after_s,
    translate_error,
)


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
        (413, "request_too_large", ErrorKind.CONTEXT_LENGTH),
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
        (400, "Too many tokens, please wait before trying again.", ErrorKind.BAD_REQUEST),
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
        (403, "", ErrorKind.BAD_KEY),
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
        ({"retry-after": "soon"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str] | None, seconds: float | None) -> None:
    assert parse_retry_after_s(headers, now=60.0) == seconds


def test_messages_are_one_bounded_line() -> None:
    found = http_error(400, {"error": {"message": "a\nb" + "x" * 5000}}, None, None)
    assert "\n" not in str(found)
    assert len(str(found)) < 400


def test_a_message_is_fit_to_be_stored_and_names_no_password() -> None:
    found = str(http_error(400, {"error": "\ud800 see http://me:secret@host/v1"}, None, None))
    assert found.encode()
    assert "http://***@host/v1" in found


def test_fastapis_errors_keep_what_they_say() -> None:
    body = {"detail": [{"loc": ["body", "tools"], "msg": "Field required"}, 5]}
    assert "['body', 'tools']: Field required" in str(http_error(422, body, None, None))


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
