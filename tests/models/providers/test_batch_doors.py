"""What the vendors say of batches, in recorded shape, and what follows for each request."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.models.batches.door import Outcome
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.anthropic_batches import AnthropicBatches
from agentsys.models.providers.openai_batches import OpenAIBatches

EXAMPLES = 40

BODY = {"id": "chatcmpl-1", "choices": []}


def openai_says(status: str, output: bytes = b"", errors: bytes = b"", **more: Any) -> OpenAIBatches:
    files = {"out": output, "err": errors}
    batch = SimpleNamespace(
        id="batch_1",
        status=status,
        output_file_id="out" if output else None,
        error_file_id="err" if errors else None,
        errors=None,
        **more,
    )
    client = SimpleNamespace(
        batches=SimpleNamespace(retrieve=lambda _: batch),
        files=SimpleNamespace(content=lambda name: SimpleNamespace(content=files[name])),
    )
    return OpenAIBatches(client, "/v1/chat/completions", "sk-secret-key")


def anthropic_says(results: bytes, status: str = "ended") -> AnthropicBatches:
    batch = SimpleNamespace(id="msgbatch_1", processing_status=status)
    batches = SimpleNamespace(retrieve=lambda _: batch)
    client = SimpleNamespace(messages=SimpleNamespace(batches=batches), get=lambda *_, **__: results)
    return AnthropicBatches(client, "sk-secret-key")


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def kind(outcome: Outcome | None) -> ErrorKind | None:
    return outcome.kind if isinstance(outcome, ModelError) else None


def replied(custom_id: str, status: int, body: Any) -> bytes:
    response = {"status_code": status, "request_id": "req_1", "body": body}
    return line({"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": None})


def test_openais_lines_are_told_by_id_in_any_order_and_none_of_anybody_elses() -> None:
    output = replied("b", 200, BODY) + b"\n" + replied("zzz", 200, BODY) + replied("a", 200, BODY)
    found = openai_says("completed", output).collect("batch_1", ["a", "b", "c"])
    assert found is not None and set(found) == {"a", "b"}
    assert isinstance(found["a"], bytes) and json.loads(found["a"]) == BODY


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {"response": {"status_code": 429, "body": {"error": {"code": "rate_limit_exceeded"}}}},
            "rate_limited",
        ),
        ({"response": {"status_code": 500, "body": {"error": {"message": "oops"}}}}, "server_error"),
        (
            {"response": {"status_code": 400, "body": {"error": {"code": "context_length_exceeded"}}}},
            "context_length",
        ),
        (
            {"response": {"status_code": 400, "body": {"error": {"code": "content_filter"}}}},
            "content_refused",
        ),
        ({"response": {"status_code": 400, "body": {"error": {"message": "bad"}}}}, "bad_request"),
        ({"response": None, "error": {"code": "batch_expired", "message": "too late"}}, "timeout"),
        ({"response": None, "error": {"code": "batch_cancelled", "message": "stopped"}}, "bad_request"),
        ({"response": None, "error": {"code": "new", "message": "what is this"}}, "server_error"),
        ({}, "server_error"),
    ],
)
def test_openais_failed_lines_end_as_single_requests_do(told: dict[str, Any], expected: str) -> None:
    found = openai_says("completed", errors=line({"custom_id": "a", **told})).collect("batch_1", ["a"])
    assert found is not None and kind(found["a"]) == ErrorKind(expected)


def test_what_an_expired_or_cancelled_batch_says_nothing_of_ended_with_it() -> None:
    output = replied("a", 200, BODY)
    late = openai_says("expired", output).collect("batch_1", ["a", "b"])
    stopped = openai_says("cancelled", output).collect("batch_1", ["a", "b"])
    assert late is not None and isinstance(late["a"], bytes) and kind(late["b"]) is ErrorKind.TIMEOUT
    assert stopped is not None and kind(stopped["b"]) is ErrorKind.BAD_REQUEST


def failed(*errors: tuple[str, str, int | None]) -> Any:
    data = [SimpleNamespace(code=code, message=message, line=number) for code, message, number in errors]
    door = openai_says("failed")
    batch = door._client.batches.retrieve("batch_1")
    batch.errors = SimpleNamespace(data=data)
    return door.collect("batch_1", ["a", "b"])


def test_a_refused_file_names_the_line_and_lets_the_others_go_again() -> None:
    one = failed(("invalid_request", "bad line", 2))
    assert (kind(one["a"]), kind(one["b"])) == (ErrorKind.SERVER_ERROR, ErrorKind.BAD_REQUEST)
    assert {kind(found) for found in failed(("token_limit_exceeded", "enqueued", None)).values()} == {
        ErrorKind.RATE_LIMITED
    }
    assert {kind(found) for found in failed(("model_not_found", "no", None)).values()} == {
        ErrorKind.UNKNOWN_MODEL
    }
    assert {kind(found) for found in failed().values()} == {ErrorKind.BAD_REQUEST}


@pytest.mark.parametrize("status", ["validating", "in_progress", "finalizing", "cancelling", "new word"])
def test_a_batch_that_has_not_ended_has_no_outcomes(status: str) -> None:
    assert openai_says(status).collect("batch_1", ["a"]) is None


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"type": "expired"}, "timeout"),
        ({"type": "canceled"}, "bad_request"),
        (
            {"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error"}}},
            "overloaded",
        ),
        ({"type": "errored", "error": {"type": "error", "error": {"type": "api_error"}}}, "server_error"),
        (
            {
                "type": "errored",
                "error": {
                    "type": "error",
                    "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
                },
            },
            "context_length",
        ),
        ({"type": "errored", "error": {"error": {"type": "authentication_error"}}}, "bad_key"),
        ({"type": "something new"}, "server_error"),
    ],
)
def test_anthropics_results_end_as_single_requests_do(result: dict[str, Any], expected: str) -> None:
    door = anthropic_says(line({"custom_id": "a", "result": result}))
    found = door.collect("msgbatch_1", ["a"])
    assert found is not None and kind(found["a"]) == ErrorKind(expected)


def test_anthropics_message_is_the_body_of_a_reply() -> None:
    message = {"type": "message", "content": [{"type": "text", "text": "Hi"}]}
    results = line({"custom_id": "a", "result": {"type": "succeeded", "message": message}})
    found = anthropic_says(results).collect("msgbatch_1", ["a"])
    assert found is not None and isinstance(found["a"], bytes) and json.loads(found["a"]) == message
    assert anthropic_says(results, "in_progress").collect("msgbatch_1", ["a"]) is None


def test_a_batch_id_that_does_not_fit_into_a_path_is_not_asked_for() -> None:
    with pytest.raises(ModelError):
        anthropic_says(b"").collect("../../v1/models", ["a"])


def test_the_key_is_cut_out_of_what_comes_back() -> None:
    output = replied("a", 200, {"echo": "sk-secret-key"})
    found = openai_says("completed", output).collect("batch_1", ["a"])
    assert found is not None and b"sk-secret-key" not in found["a"]  # type: ignore[operator]


@pytest.mark.parametrize("vendor", [lambda data: openai_says("completed", data or b"\n"), anthropic_says])
@settings(max_examples=EXAMPLES)
@given(
    data=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["a", "succeeded", "result"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["custom_id", "response", "error", "result", "type"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_a_results_file_holds_each_request_has_a_defined_outcome(
    vendor: Callable[[bytes], Any], data: bytes
) -> None:
    found = vendor(data).collect("msgbatch_1", ["a"])
    assert set(found) <= {"a"}
    assert all(isinstance(outcome, bytes | ModelError) for outcome in found.values())
