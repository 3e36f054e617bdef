"""Which kind an error becomes."""

from __future__ import annotations

import pytest

from agentsys.models.errors import ErrorKind
from agentsys.models.sdk_errors import http_error, kind_of, retry_after_s, transport_error


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
        (400, "content_filter triggered", ErrorKind.CONTENT_REFUSED),
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
    assert kind_of(status, body) is kind


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
    assert retry_after_s(headers, now=60.0) == seconds


def test_messages_are_one_bounded_line() -> None:
    found = http_error(400, {"error": {"message": "a\nb" + "x" * 5000}}, None, None)
    assert "\n" not in str(found)
    assert len(str(found)) < 400


def test_a_bug_is_no_model_error() -> None:
    assert transport_error(KeyError("x")) is None
    assert transport_error(TypeError("x")) is None
