"""Each kind of fault, as the vendors' SDKs report it, and how faults are drawn."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google.genai import errors
from hypothesis import given
from hypothesis import strategies as st
from scripted_for_serving import WEATHER, Scripted, anthropic_client, calls, generate, openai_client, says

from agentsys.errors import ConfigError
from agentsys.models.serving import FaultKind, Faults, Server, serve
from agentsys.models.serving.faults import TRANSIENT, FaultPlan

USER = {"role": "user", "content": "Hello"}
CALLING = calls(("weather", {"city": "Rome"}))
PATIENT, HASTY = 20.0, 0.5
"""Seconds a client waits."""


def always(*kinds: str, **more: Any) -> Faults:
    return Faults(rate=1.0, kinds=kinds, max_in_a_row=1000, **more)


def ask_openai(server: Server, timeout: float = PATIENT) -> Any:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    client = openai_client(server, timeout)
    return client.chat.completions.create(model="m", messages=[USER], tools=tools)  # type: ignore[arg-type, list-item]


def ask_anthropic(server: Server, timeout: float = PATIENT) -> Any:
    tools = [{"name": "weather", "input_schema": WEATHER}]
    client = anthropic_client(server, timeout)
    return client.messages.create(model="m", max_tokens=9, messages=[USER], tools=tools)  # type: ignore[arg-type, list-item]


def ask_google(server: Server, timeout: float = PATIENT) -> Any:
    return generate(server, "Hello", timeout)


Ask = Callable[..., Any]

EVERY_SDK = pytest.mark.parametrize("ask", [ask_openai, ask_anthropic, ask_google])


def failure(ask: Ask, faults: Faults, timeout: float = PATIENT) -> BaseException:
    """What the SDK raises; one HTTP request must have been all."""
    with serve(Scripted(CALLING), faults=faults) as server:
        with pytest.raises(Exception) as raised:
            ask(server, timeout)
        give_up = time.monotonic() + PATIENT
        while not server.faults and time.monotonic() < give_up:
            time.sleep(0.01)  # On a busy machine an impatient client is gone before the server looks.
        assert server.requests == 1
        assert list(server.faults.values()) == [1]
    return raised.value


@pytest.mark.parametrize(
    ("kind", "openai_error", "anthropic_type"),
    [
        ("429", openai.RateLimitError, "rate_limit_error"),
        ("500", openai.InternalServerError, "api_error"),
        ("503", openai.InternalServerError, "api_error"),
        ("529", openai.InternalServerError, "overloaded_error"),
    ],
)
def test_status_faults_are_reported_in_each_vendors_own_format(
    kind: str, openai_error: type[openai.APIStatusError], anthropic_type: str
) -> None:
    by_openai = failure(ask_openai, always(kind))
    assert type(by_openai) is openai_error
    assert by_openai.status_code == int(kind)
    by_anthropic = failure(ask_anthropic, always(kind))
    assert isinstance(by_anthropic, anthropic.APIStatusError)
    assert by_anthropic.status_code == int(kind)
    assert isinstance(by_anthropic.body, dict)
    assert by_anthropic.body["error"]["type"] == anthropic_type
    by_google = failure(ask_google, always(kind))
    assert type(by_google) is (errors.ClientError if kind == "429" else errors.ServerError)
    assert by_google.code == int(kind)
    assert by_google.status == {"429": "RESOURCE_EXHAUSTED", "500": "INTERNAL"}.get(kind, "UNAVAILABLE")


def test_a_429_says_how_long_to_wait() -> None:
    faults = always("429", retry_after_s=0.25)
    by_openai = failure(ask_openai, faults)
    assert isinstance(by_openai, openai.RateLimitError)
    assert by_openai.response.headers["retry-after"] == "0.25"
    assert by_openai.code == "rate_limit_exceeded"
    by_anthropic = failure(ask_anthropic, faults)
    assert isinstance(by_anthropic, anthropic.RateLimitError)
    assert by_anthropic.response.headers["retry-after"] == "0.25"
    by_google = failure(ask_google, faults)
    assert isinstance(by_google, errors.ClientError)
    assert by_google.response.headers["retry-after"] == "0.25"
    assert by_google.details["error"]["details"][0]["retryDelay"] == "0.25s"


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (ask_openai, openai.APITimeoutError),
        (ask_anthropic, anthropic.APITimeoutError),
        (ask_google, httpx2.ReadTimeout),
    ],
)
def test_a_time_out_outlasts_the_clients_patience(ask: Ask, error: type[Exception]) -> None:
    assert isinstance(failure(ask, always("timeout", hold_s=60.0), HASTY), error)


def test_a_time_out_breaks_off_for_a_client_with_more_patience() -> None:
    started = time.perf_counter()
    slip = failure(ask_openai, always("timeout", hold_s=0.05))
    assert isinstance(slip, openai.APIConnectionError)
    assert not isinstance(slip, openai.APITimeoutError)
    assert time.perf_counter() - started < PATIENT / 2


@pytest.mark.parametrize(
    ("ask", "error", "cause"),
    [
        (ask_openai, openai.APIConnectionError, httpx.ReadError),
        (ask_anthropic, anthropic.APIConnectionError, httpx.ReadError),
        (ask_google, httpx2.ReadError, None),
    ],
)
def test_a_reset_is_a_connection_error(ask: Ask, error: type[Exception], cause: Any) -> None:
    slip = failure(ask, always("reset"))
    assert isinstance(slip, error)
    if cause:
        assert isinstance(slip.__cause__, cause)
        assert "reset" in str(slip.__cause__).lower()


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (ask_openai, openai.APIConnectionError),
        (ask_anthropic, anthropic.APIConnectionError),
        (ask_google, httpx2.RemoteProtocolError),
    ],
)
def test_a_truncated_body_is_a_connection_error(ask: Ask, error: type[Exception]) -> None:
    assert isinstance(failure(ask, always("truncated")), error)


@EVERY_SDK
def test_invalid_json_is_found_out_by_the_sdk(ask: Ask) -> None:
    assert isinstance(failure(ask, always("invalid_json")), json.JSONDecodeError)


def test_too_long_a_request_is_refused_in_each_vendors_words() -> None:
    by_openai = failure(ask_openai, always("context_length"))
    assert isinstance(by_openai, openai.BadRequestError)
    assert by_openai.code == "context_length_exceeded"
    by_anthropic = failure(ask_anthropic, always("context_length"))
    assert isinstance(by_anthropic, anthropic.BadRequestError)
    assert "prompt is too long" in str(by_anthropic)
    by_google = failure(ask_google, always("context_length"))
    assert isinstance(by_google, errors.ClientError)
    assert (by_google.code, by_google.status) == (400, "INVALID_ARGUMENT")
    assert "input token count" in str(by_google)


def test_bad_arguments_are_no_json_object_in_any_format() -> None:
    with serve(Scripted(CALLING), faults=always("bad_arguments")) as server:
        call = ask_openai(server).choices[0].message.tool_calls[0]
        use = ask_anthropic(server).content[0]
        with pytest.raises(ValueError, match="args"):  # Google's SDK refuses to build the response.
            ask_google(server)
    with pytest.raises(json.JSONDecodeError):
        json.loads(call.function.arguments)
    assert call.function.name == "weather"
    assert isinstance(use.input, str)


def test_an_unknown_tool_is_none_of_those_on_offer() -> None:
    with serve(Scripted(CALLING), faults=always("unknown_tool")) as server:
        names = [
            ask_openai(server).choices[0].message.tool_calls[0].function.name,
            ask_anthropic(server).content[0].name,
            ask_google(server).function_calls[0].name,
        ]
    assert names == ["weather_unknown"] * 3


def test_an_empty_reply_has_neither_text_nor_calls() -> None:
    with serve(Scripted(CALLING), faults=always("empty_reply")) as server:
        message = ask_openai(server).choices[0].message
        assert (message.content, message.tool_calls) == (None, None)
        assert ask_anthropic(server).content == []
        assert ask_google(server).candidates[0].content.parts is None


def test_faults_of_calls_spare_replies_without_calls() -> None:
    with serve(Scripted(says("plain")), faults=always("bad_arguments", "unknown_tool")) as server:
        assert ask_openai(server).choices[0].message.content == "plain"
        assert server.faults == {}


def test_faults_of_calls_turn_into_others_where_the_reply_makes_none() -> None:
    with serve(Scripted(says("plain")), faults=always("bad_arguments", "500")) as server:
        for _ in range(8):
            with pytest.raises(openai.InternalServerError):
                ask_openai(server)
        assert server.faults == {FaultKind.SERVER_ERROR: 8}


def test_by_default_only_faults_that_a_retry_survives_are_drawn() -> None:
    assert set(FaultKind) - set(TRANSIENT) == {FaultKind.UNKNOWN_TOOL, FaultKind.CONTEXT_LENGTH}
    assert Faults().kinds == TRANSIENT


def drawn(plan: FaultPlan, contents: list[bytes]) -> list[str | None]:
    return [fault.kind.value if fault else None for fault in map(plan.draw, contents)]


def test_the_same_seed_draws_the_same_faults_in_whatever_order_requests_come() -> None:
    contents = [b"%d" % (number % 50) for number in range(400)]
    first = dict(zip(contents, drawn(FaultPlan(Faults(0.3, seed=1)), contents), strict=True))
    backwards = sorted(contents, reverse=True)
    again = dict(zip(backwards, drawn(FaultPlan(Faults(0.3, seed=1)), backwards), strict=True))
    other = dict(zip(contents, drawn(FaultPlan(Faults(0.3, seed=2)), contents), strict=True))
    assert first == again
    assert first != other


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_share_of_faults_is_the_rate(rate: float) -> None:
    fates = drawn(FaultPlan(Faults(rate)), [b"%d" % number for number in range(4000)])
    share = sum(fate is not None for fate in fates) / 4000
    assert share == pytest.approx(rate, abs=0.03)
    if rate:
        assert {fate for fate in fates if fate} == set(TRANSIENT)


@given(rate=st.floats(0, 1), seed=st.integers(), most=st.integers(1, 5), content=st.binary())
def test_no_content_fails_more_often_in_a_row_than_allowed(
    rate: float, seed: int, most: int, content: bytes
) -> None:
    plan = FaultPlan(Faults(rate, seed=seed, max_in_a_row=most))
    in_a_row = longest = 0
    for fate in drawn(plan, [content] * 40):
        in_a_row = in_a_row + 1 if fate else 0
        longest = max(longest, in_a_row)
    assert longest <= most
    if rate == 1.0:
        assert longest == most


@pytest.mark.parametrize(
    "wrong",
    [{"rate": 1.5}, {"rate": -0.1}, {"kinds": ("resett",)}, {"rate": 0.5, "kinds": ()}, {"max_in_a_row": 0}],
)
def test_impossible_faults_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Faults(**wrong)


def test_an_unknown_fault_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean reset"):
        Faults(kinds=("resett",))
