"""The vendors' SDKs: what goes out, what a wait, a stall, an error under 200 and an unknown block become.

Our adapters hand them a body and take the bytes of the reply; these are the reasons.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any

import anthropic
import openai
import pytest
from agentdojo.functions_runtime import FunctionCall
from google import genai
from google.genai import errors as google_errors
from google.genai import types as google_types
from providers_under_test import model_at

from agentsys.models.chat import ChatRequest, ToolSpec, assistant, system, tool_message, user

HELLO: list[Any] = [{"role": "user", "content": "Hi"}]
MAJOR = {name: int(version(name).split(".")[0]) for name in ("openai", "anthropic")}
CHAT: dict[str, Any] = {
    **{"id": "x", "object": "chat.completion", "created": 1, "model": "m"},
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
}
MESSAGE: dict[str, Any] = {
    **{"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"},
    "content": [{"type": "text", "text": "ok"}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
CANDIDATE: dict[str, Any] = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]
}
REPLIES = {"openai": CHAT, "anthropic": MESSAGE, "google": CANDIDATE}


class Asked:
    """A server's requests, and how it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.reply, self.retry_after, self.pause_s = 200, {}, "", 0.0  # type: ignore[var-annotated]


@contextmanager
def serving(**how: Any) -> Iterator[Asked]:
    asked = Asked()
    vars(asked).update(how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            asked.headers.append({name.lower(): value for name, value in self.headers.items()})
            body = json.dumps(asked.reply).encode()
            self.send_response(asked.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if asked.retry_after:
                self.send_header("retry-after", asked.retry_after)
            self.end_headers()
            for start in range(0, len(body), len(body) // 4 or 1):
                time.sleep(asked.pause_s)
                self.wfile.write(body[start : start + (len(body) // 4 or 1)])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    asked.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()


def ask_openai(url: str, more: Any = (), **client: Any) -> Any:
    sdk = openai.OpenAI(api_key="sk-1", base_url=url, **client)
    return sdk.chat.completions.create(model="m", messages=HELLO, **dict(more))


def ask_anthropic(url: str, more: Any = (), **client: Any) -> Any:
    sdk = anthropic.Anthropic(api_key="sk-1", base_url=url, **client)
    return sdk.messages.create(model="m", max_tokens=9, messages=HELLO, **dict(more))


def ask_google(url: str, more: Any = ()) -> Any:
    sdk = genai.Client(api_key="sk-1", http_options=google_types.HttpOptions(base_url=url))
    return sdk.models.generate_content(model="m", contents="Hi", config=dict(more) or None)  # type: ignore[arg-type]


ASK: dict[str, Callable[..., Any]] = {
    "openai": ask_openai,
    "anthropic": ask_anthropic,
    "google": ask_google,
}


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: waits.append(round(seconds, 1)) if seconds else None)
    return waits


def test_none_is_sent_as_null_by_two_and_left_out_by_googles() -> None:
    with serving(reply=CHAT) as asked:
        ask_openai(asked.url, {"temperature": None})
    assert asked.bodies == [{"model": "m", "messages": HELLO, "temperature": None}]
    with serving(reply=MESSAGE) as asked:
        ask_anthropic(asked.url, {"system": None})
    assert asked.bodies == [{"model": "m", "max_tokens": 9, "messages": HELLO, "system": None}]
    with serving(reply=CANDIDATE) as asked:
        ask_google(asked.url, {"temperature": None, "seed": 0})
    assert asked.bodies == [
        {"contents": [{"parts": [{"text": "Hi"}], "role": "user"}], "generationConfig": {"seed": 0}}
    ]


def test_anthropics_sdk_asks_under_another_version_of_the_api_from_2_on() -> None:
    with serving(reply=MESSAGE) as asked:
        ask_anthropic(asked.url)
    (headers,) = asked.headers
    newer = MAJOR["anthropic"] >= 2
    assert headers["anthropic-version"] == ("2026-10-21" if newer else "2023-06-01")
    assert headers.get("x-api-key") == (None if newer else "sk-1")
    assert headers.get("authorization") == ("Bearer sk-1" if newer else None)


def test_temperature_is_no_keyword_of_anthropics_sdk_from_2_on() -> None:
    with serving(reply=MESSAGE) as asked:
        if MAJOR["anthropic"] < 2:
            ask_anthropic(asked.url, {"temperature": 0.0})
            assert asked.bodies[0]["temperature"] == 0.0
            return
        with pytest.raises(TypeError, match="temperature"):
            ask_anthropic(asked.url, {"temperature": 0.0})


CALLS = [FunctionCall(function="read_mail", args={"id": number}, id=f"c{number}") for number in (5, 6)]
ID: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}}
ASKED = ChatRequest(
    [
        *(system("Be brief."), user("Sum up."), assistant("I look.", CALLS)),
        *(tool_message(CALLS[0], "Lunch."), tool_message(CALLS[1], "")),
    ],
    [ToolSpec("read_mail", "Reads.", ID)],
)
SENT = {
    "openai": """{"model": "m-1", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content":
 "Sum up."}, {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "d0bf3e6ee", "type": "function",
 "function": {"name": "read_mail", "arguments": "{\\"id\\":5}"}}, {"id": "6db53c9d5", "type": "function", "function":
 {"name": "read_mail", "arguments": "{\\"id\\":6}"}}]}, {"role": "tool", "tool_call_id": "d0bf3e6ee", "name":
 "read_mail", "content": "Lunch."}, {"role": "tool", "tool_call_id": "6db53c9d5", "name": "read_mail", "content": ""}],
 "temperature": 0.0, "tool_choice": "auto", "tools": [{"type": "function", "function": {"name": "read_mail",
 "description": "Reads.", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}}]}""",
    "anthropic": """{"model": "m-1", "max_tokens": 100, "messages": [{"role": "user", "content": [{"type": "text",
 "text": "Sum up."}]}, {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id":
 "c5", "name": "read_mail", "input": {"id": 5}}, {"type": "tool_use", "id": "c6", "name": "read_mail", "input": {"id":
 6}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c5", "content": "Lunch."}, {"type":
 "tool_result", "tool_use_id": "c6", "content": ""}]}], "system": "Be brief.", "temperature": 0.0, "tool_choice":
 {"type": "auto"}, "tools": [{"name": "read_mail", "description": "Reads.", "input_schema": {"type": "object",
 "properties": {"id": {"type": "integer"}}}}]}""",
    "google": """{"contents": [{"role": "user", "parts": [{"text": "Sum up."}]}, {"role": "model", "parts": [{"text":
 "I look."}, {"functionCall": {"id": "c5", "name": "read_mail", "args": {"id": 5}}}, {"functionCall": {"id": "c6",
 "name": "read_mail", "args": {"id": 6}}}]}, {"role": "user", "parts": [{"functionResponse": {"id": "c5", "name":
 "read_mail", "response": {"output": "Lunch."}}}, {"functionResponse": {"id": "c6", "name": "read_mail", "response":
 {"output": ""}}}]}], "generationConfig": {"temperature": 0.0}, "systemInstruction": {"parts": [{"text":
 "Be brief."}]}, "tools": [{"functionDeclarations": [{"name": "read_mail", "description": "Reads.",
 "parametersJsonSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}}]}], "toolConfig":
 {"functionCallingConfig": {"mode": "AUTO"}}}""",
}
"""Vendor -> the body of `ASKED`, names and blocks in their order."""


@pytest.mark.parametrize("vendor", SENT)
def test_our_requests_are_the_same_with_every_sdk(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-1")
    with serving(reply=REPLIES[vendor]) as asked:
        model_at(vendor, asked.url, "A_KEY").complete(ASKED)
    (headers,) = asked.headers
    assert json.dumps(asked.bodies[0]) == SENT[vendor].replace("\n", "")
    key = {"openai": "authorization", "anthropic": "x-api-key", "google": "x-goog-api-key"}[vendor]
    assert headers[key].removeprefix("Bearer ") == "sk-1"
    assert headers.get("anthropic-version") == ("2023-06-01" if vendor == "anthropic" else None)


ERRORS = (openai.RateLimitError, anthropic.RateLimitError, google_errors.ClientError)


@pytest.mark.parametrize(
    ("vendor", "wait", "waits"),
    [
        ("openai", "1", [1.0, 1.0]),
        ("anthropic", "1", [1.0, 1.0]),
        ("google", "1", []),
        ("openai", "3600", []),
        ("anthropic", "3600", [3600.0, 3600.0] if MAJOR["anthropic"] >= 2 else None),
        ("google", "3600", []),
    ],
)
def test_what_retry_after_does(vendor: str, wait: str, waits: list[float] | None, slept: list[float]) -> None:
    refusal = {"error": {"message": "slow down", "type": "x", "code": 429, "status": "X"}}
    with serving(status=429, retry_after=wait, reply=refusal) as asked, pytest.raises(ERRORS):
        ASK[vendor](asked.url)
    told = [seconds for seconds in slept if seconds >= 0.3]
    if waits is None:  # before 2 a wait above a minute was the SDK's own, short one
        assert len(told) == 2 and max(told) < 2
        return
    assert told == waits
    assert len(asked.bodies) == len(waits) + 1


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_a_timeout_is_of_each_read_and_not_of_the_whole(vendor: str) -> None:
    with serving(reply=REPLIES[vendor], pause_s=0.3) as asked:
        began = time.monotonic()
        assert ASK[vendor](asked.url, timeout=0.8, max_retries=0)
        assert time.monotonic() - began > 0.8


@pytest.mark.parametrize("vendor", ASK)
def test_an_error_under_status_200_is_no_exception(vendor: str) -> None:
    with serving(reply={"error": {"message": "overloaded", "type": "server_error", "code": 503}}) as asked:
        reply = ASK[vendor](asked.url)
    empty = {"openai": "choices", "anthropic": "content", "google": "candidates"}[vendor]
    assert getattr(reply, empty) is None
    assert len(asked.bodies) == 1


def test_an_unknown_block_of_claudes_is_given_as_a_text_block_without_text() -> None:
    block = {"type": "hologram", "data": "z"}
    with serving(reply={**MESSAGE, "content": [block]}) as asked:
        (read,) = ask_anthropic(asked.url).content
    assert (type(read).__name__, read.type, read.text) == ("TextBlock", "hologram", None)


def test_an_unknown_part_of_geminis_is_given_as_an_empty_part() -> None:
    parts = [{"hologram": {"a": 1}}, {"text": "ok"}]
    with serving(reply={"candidates": [{"content": {"role": "model", "parts": parts}}]}) as asked:
        first, second = ask_google(asked.url).candidates[0].content.parts
    assert first.model_dump(exclude_none=True) == {}
    assert second.text == "ok"


def test_an_unknown_kind_of_call_is_given_as_a_function_call_without_a_function() -> None:
    call = {"id": "c", "type": "moon", "moon": {}}
    choice = {"index": 0, "finish_reason": "moon", "message": {"role": "assistant", "tool_calls": [call]}}
    with serving(reply={**CHAT, "choices": [choice]}) as asked:
        read = ask_openai(asked.url).choices[0]
    assert read.finish_reason == "moon"
    assert read.message.tool_calls[0].function is None
