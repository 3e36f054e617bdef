"""An exchange ends in time, stays small, and goes nowhere else, whatever the SDK."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator

import pytest
from hostile_server import hostile
from providers_under_test import PROVIDERS, VENDORS, model_at

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, user

ASK = ChatRequest([user("Hi")])
KEY = "sk-test-0123456789abcdefghij"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
REPLIES = {
    "openai": {"choices": [{"message": {"content": "yes"}}]},
    "anthropic": {"content": [{"type": "text", "text": "yes"}]},
    "google": {"candidates": [{"content": {"parts": [{"text": "yes"}]}}]},
}
"""The same reply from each vendor."""


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [
        b"HTTP/1.1 " + status,
        b"Content-Length: " + str(len(body)).encode(),
        b"Connection: close",
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def trickle(head: bytes, piece: bytes, pause_s: float) -> Iterator[bytes | float]:
    yield head
    while True:
        yield pause_s
        yield piece


ENDLESS = {
    "body": (HEAD + b"\r\n", b" "),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "header": (HEAD + b"X-Long: ", b"a"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


def error_of(vendor: str, *pieces: bytes, key_env: str | None = None, **more: object) -> ModelError:
    with hostile(lambda _: iter(pieces)) as server, pytest.raises(ModelError) as caught:
        model_at(vendor, server.base_url, key_env, **more).complete(ASK)
    return caught.value


def reply_of(vendor: str, *pieces: bytes, key_env: str | None = None, **more: object) -> ChatReply:
    with hostile(lambda _: iter(pieces)) as server:
        return model_at(vendor, server.base_url, key_env, **more).complete(ASK)


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("stream", ENDLESS)
def test_a_stream_without_end_is_a_timeout_when_the_time_is_up(vendor: str, stream: str) -> None:
    head, piece = ENDLESS[stream]
    with hostile(lambda _: trickle(head, piece, 0.05)) as server:
        model = model_at(vendor, server.base_url, timeout_s=0.4)
        start = time.monotonic()
        with pytest.raises(ModelError) as caught:
            model.complete(ASK)
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_reply_longer_than_the_bound_is_malformed(vendor: str, packed: bool) -> None:
    body = b" " * 50_000 + json.dumps(REPLIES[vendor]).encode()
    whole = answer(gzip.compress(body), b"Content-Encoding: gzip") if packed else answer(body)
    assert error_of(vendor, whole, max_reply_bytes=50_000).kind is ErrorKind.MALFORMED_REPLY
    assert reply_of(vendor, whole, max_reply_bytes=60_000).message["content"]


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip", b"deflate"])
def test_an_encoding_that_was_not_asked_for_is_malformed(vendor: str, encoding: bytes) -> None:
    found = error_of(vendor, answer(b"{}", b"Content-Encoding: " + encoding))
    assert found.kind is ErrorKind.MALFORMED_REPLY
    assert "not asked for" in str(found)


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_that_names_the_target_and_nothing_goes_there(
    vendor: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    with hostile(lambda _: iter([answer(b"{}")])) as other:
        target = f"http://user:secret@127.0.0.1:{other.port}/there?k={KEY}"
        moved = answer(b"", f"Location: {target}".encode(), status=f"{status} Moved".encode())
        found = error_of(vendor, moved, key_env="SOME_KEY")
        assert other.requests == []
    assert found.kind is ErrorKind.BAD_REQUEST
    assert f"{status}: the server redirects to http://***@127.0.0.1:{other.port}/there" in str(found)
    assert "secret" not in str(found)
    assert KEY not in str(found)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_key_in_a_reply_is_cut_however_it_is_spelled(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    escaped = "".join(f"\\u{ord(char):04x}" for char in KEY)
    body = json.dumps(REPLIES[vendor]).replace("yes", f"it is {escaped}, {KEY[:14]}- yes").encode()
    content = reply_of(vendor, answer(body), key_env="SOME_KEY").message["content"] or []
    assert [block["content"] for block in content] == ["it is ***, ***- yes"]


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize(
    ("body", "kind", "wait_s"),
    [
        (b'{"error":"slow down"}', ErrorKind.RATE_LIMITED, None),
        (b'{"error":{"details":5}}', ErrorKind.RATE_LIMITED, None),
        (b'{"error":{"details":[{"retryDelay":"\xc2\xb2s"}]}}', ErrorKind.RATE_LIMITED, None),
        (b'{"error":{"details":[{"retryDelay":"31.5s"}]}}', ErrorKind.RATE_LIMITED, 31.5),
        (b"[]", ErrorKind.RATE_LIMITED, None),
    ],
)
def test_an_odd_error_body_is_still_the_error_its_status_says(
    vendor: str, body: bytes, kind: ErrorKind, wait_s: float | None
) -> None:
    found = error_of(vendor, answer(body, status=b"429 Too Many"))
    assert (found.kind, found.retry_after_s) == (kind, wait_s)


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_too_many_values_are_malformed_before_they_take_the_memory(vendor: str) -> None:
    body = b'{"a":[' + b"[]," * 1_000_000 + b"[]]}"
    assert "values" in str(error_of(vendor, answer(body)))


@pytest.mark.parametrize("vendor", VENDORS)
def test_any_success_is_read_as_one_and_an_empty_one_is_malformed(vendor: str) -> None:
    body = json.dumps(REPLIES[vendor]).encode()
    assert reply_of(vendor, answer(body, status=b"201 Created")).message["content"]
    empty = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    assert error_of(vendor, empty).kind is ErrorKind.MALFORMED_REPLY
