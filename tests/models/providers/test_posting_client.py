"""What our own post sends is what the vendor's SDK sends, to the byte."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pytest
from hostile_server import Hostile, hostile
from providers_under_test import model_at

from agentsys.models.chat import ChatReply, ChatRequest, user
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.bounded_http import bounded_client
from agentsys.models.providers.posting_client import PostingClient

KEY = "sk-test-0123456789abcdefghij"
ASK = ChatRequest([user("Grüße, 你好")], role="validator")
REPLY = json.dumps(
    {"choices": [{"message": {"content": "yes"}}], "content": [{"type": "text", "text": "yes"}]}
).encode()
VENDORS = ("openai", "anthropic")


def answer(*headers: bytes, body: bytes = REPLY, status: bytes = b"200 OK") -> bytes:
    lines = (b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@contextmanager
def server(*headers: bytes, **more: bytes) -> Iterator[Hostile]:
    """Answers every request alike, and closes each connection."""
    with hostile(lambda _: [answer(b"Connection: close", *headers, **more)]) as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def both_ways(model: Any, seen: Hostile) -> tuple[bytes, bytes]:
    """A request as it arrives from us, and as it does from the SDK."""
    assert model._client._pattern is not None
    body, own = model._body(ASK), model._role_header(ASK)
    before = len(seen.requests)
    for post in (model._client.post, model._client._by_sdk):
        with suppress(Exception):  # a proxy's refusal; what arrived is looked at
            post(body, own)
    ours, sdks = seen.requests[before:]
    return ours, sdks


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("role", [False, True])
@pytest.mark.parametrize("key", [None, "SOME_KEY"])
def test_the_bytes_are_those_of_the_sdk(vendor: str, role: bool, key: str | None) -> None:
    with server() as seen:
        model: Any = model_at(vendor, seen.base_url, key, send_role=role)
        assert seen.requests == []  # what the SDK was asked for went nowhere
        ours, sdks = both_ways(model, seen)
    assert ours == sdks
    assert b"\r\nAccept-Encoding: gzip\r\n" in ours  # no other can be read
    assert ours.startswith(b"POST /v1/") and ours.endswith(model._body(ASK))
    assert (b"X-Agentsys-Role: validator\r\n" in ours) is role
    assert (KEY.encode() in ours) is (key is not None)


@pytest.mark.parametrize(
    "more",
    [
        {"api": "responses"},
        {"tools": "text"},
        {"extra_body": {"top_k": 5}},
        {"timeout_s": 7.5},
    ],
)
def test_so_they_are_whatever_the_model_s_file_says(more: dict[str, Any]) -> None:
    with server() as seen:
        ours, sdks = both_ways(model_at("openai", seen.base_url, **more), seen)
    assert ours == sdks


@pytest.mark.parametrize("place", ["/a/b%20c/", "?version=2", "/v1?a=1&b=%2F"])
@pytest.mark.parametrize("user", ["", "me:s%20ecret@"])
def test_so_they_are_for_any_address(place: str, user: str) -> None:
    with server() as seen:
        base_url = f"http://{user}127.0.0.1:{seen.port}{place}"
        ours, sdks = both_ways(model_at("anthropic", base_url, "SOME_KEY"), seen)
    assert ours == sdks
    assert (b"Authorization: Basic " in ours) is bool(user)


def test_so_they_are_with_what_an_sdk_reads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-7")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-8")
    with server() as seen:
        ours, sdks = both_ways(model_at("openai", seen.base_url, "SOME_KEY"), seen)
    assert ours == sdks
    assert b"org-7" in ours and b"proj-8" in ours


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_so_they_are_for_a_proxy(vendor: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(status=b"502 Bad Gateway") as proxy:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://me:pass@127.0.0.1:{proxy.port}")
        ours, sdks = both_ways(model_at(vendor, f"{scheme}://vendor.invalid"), proxy)
    assert ours == sdks
    line = b"CONNECT vendor.invalid:443 " if scheme == "https" else b"POST http://vendor.invalid/v1/"
    assert ours.startswith(line)
    assert b"Proxy-Authorization: Basic " in ours


def test_a_host_named_in_no_proxy_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(status=b"502 Bad Gateway") as proxy, server() as seen:
        monkeypatch.setenv("ALL_PROXY", proxy.base_url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        ours, sdks = both_ways(model_at("openai", seen.base_url), seen)
        assert proxy.requests == []
    assert ours == sdks


def test_the_sdk_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as seen:
        model: Any = model_at("openai", seen.base_url)
        monkeypatch.setattr(model._client.sdk, "post", None)
        assert [said(model.complete(ASK)) for _ in range(2)] == ["yes", "yes"]


def said(reply: ChatReply) -> str:
    return "".join(str(block.get("content")) for block in reply.message["content"] or [])


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_servers_cookie_comes_back_and_one_taken_away_does_not(vendor: str) -> None:
    cookies = iter([b"stick=a1; Path=/", b"X-None: 1", b"stick=; Path=/; Max-Age=0", b"X-None: 1"])

    def next_one(_: bytes) -> list[bytes]:
        cookie = next(cookies)
        return [answer(b"Connection: close", (b"Set-Cookie: " if b"stick" in cookie else b"") + cookie)]

    with hostile(next_one) as seen:
        model = model_at(vendor, seen.base_url)
        for _ in range(4):
            assert said(model.complete(ASK)) == "yes"
    assert [b"Cookie: stick=a1\r\n" in request for request in seen.requests] == [False, True, True, False]


def test_a_cookie_of_a_failed_request_counts_and_errors_stay_what_they_are() -> None:
    headers = (b"Set-Cookie: stick=a1; Path=/", b"Retry-After: 3")
    with server(*headers, status=b"429 Too Many", body=b"{}") as seen:
        model = model_at("openai", seen.base_url)
        found = [error_of(model) for _ in range(2)]
    assert [b"Cookie: stick=a1\r\n" in request for request in seen.requests] == [False, True]
    assert {(error.kind, error.retry_after_s, str(error)) for error in found} == {
        (ErrorKind.RATE_LIMITED, 3.0, str(found[0]))
    }


def error_of(model: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        model.complete(ASK)
    return caught.value


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_connection_is_used_again(vendor: str) -> None:
    with hostile(lambda _: [answer()], keeps=True) as seen:
        model = model_at(vendor, seen.base_url)
        for _ in range(3):
            assert said(model.complete(ASK)) == "yes"
        assert len(seen.places) == 3 and len(set(seen.places)) == 1


@pytest.mark.parametrize("vendor", [*VENDORS, "google"])
def test_what_a_server_wrote_into_a_broken_answer_is_told_without_the_key(vendor: str) -> None:
    with hostile(lambda _: [b"HTTP/1.1 200 OK\r\n" + KEY.encode() + b"\r\n\r\n"]) as seen:
        found = error_of(model_at(vendor, seen.base_url, "SOME_KEY"))
    assert found.kind is ErrorKind.CONNECTION
    assert "illegal header line" in str(found) and KEY not in str(found)


def test_a_broken_connection_says_how() -> None:
    assert "refused" in str(error_of(model_at("openai", "http://127.0.0.1:1")))
    with hostile(lambda _: [answer()[:-1]]) as seen:
        assert "complete message body" in str(error_of(model_at("openai", seen.base_url)))


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "http://a..b", "127.0.0.1:1/v1", "ftp://127.0.0.1"]
)
@pytest.mark.parametrize("vendor", VENDORS)
def test_an_address_where_nobody_answers_is_no_connection(vendor: str, address: str) -> None:
    found = error_of(model_at(vendor, address))
    assert found.kind is ErrorKind.CONNECTION
    assert ("an unsupported protocol 'ftp://'" in str(found)) is address.startswith("ftp:")


class Made:
    """An SDK's client whose requests a test makes up."""

    def __init__(self, http: Any, base_url: str, odd: str) -> None:
        self.http, self.base_url, self.odd = http, base_url, odd
        self.numbers = itertools.count()

    def post(self, path: str, *, cast_to: type, content: bytes, options: Any) -> Any:
        headers = dict(options["headers"])
        if self.odd == "a number for each":
            headers["X-Number"] = str(next(self.numbers))
        if self.odd == "its own body":
            content = content[:-1] + b',"more":1}'
        if self.odd == "asks first":
            with suppress(ModelError):
                self.http.post(self.base_url + "/may-i", content=content, headers=headers)
        return self.http.post(self.base_url + path, content=content, headers=headers).content


@pytest.mark.parametrize("family", ["httpx", "httpx2"])
@pytest.mark.parametrize("odd", ["", "a number for each", "its own body", "asks first"])
def test_requests_that_differ_in_more_are_the_sdks_own(family: str, odd: str) -> None:
    base = pytest.importorskip(family).Client
    with server() as seen:
        http = bounded_client(base, 10.0, 1_000_000, None)
        client = PostingClient(Made(http, seen.base_url, odd), http, "/there", "X-Own")
        assert (client._pattern is None) is bool(odd)
        for letter in ("x", "y"):
            assert client.post(f'{{"a":"{letter}"}}'.encode(), {"X-Own": letter}) == REPLY
    posts = [request for request in seen.requests if request.startswith(b"POST /there ")]
    assert len(posts) == 2
    for letter, request in zip(("x", "y"), posts, strict=True):
        assert f'{{"a":"{letter}"' in request.decode() and f"X-Own: {letter}\r\n" in request.decode()
    if odd == "a number for each":
        assert posts[0].split(b"X-Number: ")[1][:1] != posts[1].split(b"X-Number: ")[1][:1]


@pytest.mark.parametrize("family", ["httpx", "httpx2"])
def test_the_sdk_may_stand_on_either_http_library(family: str) -> None:
    pytest.importorskip(family)
    import openai

    http = bounded_client(import_module(family).Client, 10.0, 1_000_000, None)
    with server(b"Set-Cookie: a=b; Path=/") as seen:
        sdk = openai.OpenAI(base_url=seen.base_url, api_key=KEY, max_retries=0, http_client=http)
        client = PostingClient(sdk, http, "/chat/completions", None)
        assert client._pattern is not None
        assert client.post(b"{}", {}) == client._by_sdk(b"{}", {}) == REPLY
    ours, sdks = seen.requests
    assert sdks.replace(b"Cookie: a=b\r\n", b"") == ours != sdks
