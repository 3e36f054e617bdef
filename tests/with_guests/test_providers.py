"""Our three adapters through the vendors' real SDKs, against the served model."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from provider_sdks import PROVIDERS as PROVIDERS_FOLDER
from providers_under_test import PROVIDERS, VENDORS, answering, model_at
from scripted_for_serving import WEATHER, Scripted, calls, says
from served_faults import Faults, serve

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
from agentsys.models.providers import google
from agentsys.models.tool_schema import make_enforceable_schema

TOOL = ToolSpec("weather", "Tells.", WEATHER)
ASK = ChatRequest([system("Be brief."), user("Hello")], [TOOL])
NOTHING_SAID: dict[str, list[Any] | None] = {"openai": None, "anthropic": [], "google": []}
"""What AgentDojo's own element of a vendor makes of a reply without a text; where it is None it asks again."""


def tool_result(call: FunctionCall, text: str, error: str | None = None) -> ChatMessage:
    content: Any = [{"type": "text", "content": text}]
    return {"role": "tool", "content": content, "tool_call_id": call.id, "tool_call": call, "error": error}


def test_providers_with_a_client_of_their_own_are_found_by_themselves() -> None:
    adapters = {path.stem for path in PROVIDERS_FOLDER.glob("*.py") if "(SdkModel)" in path.read_text()}
    assert set(PROVIDERS) >= set(VENDORS)
    assert adapters - {"litellm", "sdk_model"} <= set(PROVIDERS)


@pytest.mark.parametrize("vendor", VENDORS)
def test_text_usage_and_cost_come_back(vendor: str) -> None:
    with serve(Scripted(says("Good day", Usage(prompt=100, completion=50)))) as server:
        reply = model_at(vendor, server.base_url).complete(ASK)
    assert text_of(reply.message) == "Good day"
    assert reply.message["tool_calls"] is None
    assert (reply.usage.prompt, reply.usage.completion) == (100, 50)
    assert reply.model_id == "scripted"
    assert reply.cost_usd is None


@pytest.mark.parametrize("vendor", VENDORS)
def test_conversation_reaches_the_server_as_it_was(vendor: str) -> None:
    scripted = Scripted(says("ok"))
    first, second = (
        FunctionCall(function="weather", args={"city": c}, id=f"id_{c}") for c in ("Rome", "Oslo")
    )
    messages = [
        system("Be brief."),
        user("Weather?"),
        assistant("Looking.", [first, second]),
        tool_result(first, "sun"),
        tool_result(second, "", "no such city"),
        assistant(None, [FunctionCall(function="weather", args={}, id="id_3")]),
        tool_result(FunctionCall(function="weather", args={}, id="id_3"), "rain"),
    ]
    with serve(scripted) as server:
        model_at(vendor, server.base_url).complete(ChatRequest(messages, [TOOL]))
    asked = scripted.asked[0]
    got = [(message["role"], text_of(message)) for message in asked.messages]
    roles = ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [role for role, _ in got] == roles
    assert [text for _, text in got][:4] == ["Be brief.", "Weather?", "Looking.", "sun"]
    fifth = asked.messages[4]
    assert "no such city" in (text_of(fifth), fifth.get("error"))
    made = asked.messages[2]["tool_calls"]
    assert [(call.function, dict(call.args)) for call in made] == [
        ("weather", {"city": "Rome"}),
        ("weather", {"city": "Oslo"}),
    ]
    assert list(asked.tools) == [TOOL]


@pytest.mark.parametrize("vendor", VENDORS)
def test_parallel_calls_come_back_in_order_with_different_ids(vendor: str) -> None:
    with serve(Scripted(calls(("weather", {"city": "Rome"}), ("weather", {"city": "Zürich"})))) as server:
        reply = model_at(vendor, server.base_url).complete(ASK)
    made = reply.message["tool_calls"] or []
    assert [call.args for call in made] == [{"city": "Rome"}, {"city": "Zürich"}]
    assert len({call.id for call in made}) == 2
    assert reply.message["content"] == NOTHING_SAID[vendor]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_reply_without_a_text_has_the_content_that_agentdojos_element_gives_it(vendor: str) -> None:
    with serve(Scripted(says(None))) as server:
        reply = model_at(vendor, server.base_url).complete(ASK)
    assert (reply.message["content"], reply.message["tool_calls"]) == (NOTHING_SAID[vendor], None)


def _sent_temperature(vendor: str, model_temperature: float | None, asked: float | None) -> Any:
    with serve(Scripted(says("x"))) as server:
        model = model_at(vendor, server.base_url, temperature=model_temperature)
        model.complete(ChatRequest([user("Hi")], temperature=asked))
        body = json.loads(server.captured[0].body)
    return (body["generationConfig"] if vendor == "google" else body).get("temperature", "absent")


@pytest.mark.parametrize("vendor", VENDORS)
def test_temperature_is_on_the_wire_as_configured_and_asked(vendor: str) -> None:
    assert _sent_temperature(vendor, 0.0, None) == 0.0
    assert _sent_temperature(vendor, 0.0, 0.7) == 0.7
    assert _sent_temperature(vendor, None, None) == "absent"
    assert _sent_temperature(vendor, None, 0.7) == "absent"


@pytest.mark.parametrize("vendor", VENDORS)
def test_role_travels_only_where_asked_for(vendor: str) -> None:
    scripted = Scripted(says("x"))
    with serve(scripted) as server:
        for send_role in (True, False):
            model = model_at(vendor, server.base_url, send_role=send_role)
            model.complete(ChatRequest([user("Hi")], role="validator"))
    assert [asked.role for asked in scripted.asked] == ["validator", "agent"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_tool_choice_none_and_bounds_reach_the_server(vendor: str) -> None:
    scripted = Scripted(says("x"))
    with serve(scripted) as server:
        request = ChatRequest([user("Hi")], [TOOL], max_tokens=77, tool_choice="none")
        model_at(vendor, server.base_url).complete(request)
    assert (scripted.asked[0].tool_choice, scripted.asked[0].max_tokens) == ("none", 77)


@pytest.mark.parametrize("vendor", ["openai", "google"])
def test_reply_schema_reaches_the_server_where_it_is_enforced(vendor: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    scripted = Scripted(says("{}"))
    with serve(scripted) as server:
        model_at(vendor, server.base_url).complete(ChatRequest([user("Hi")], reply_schema=schema))
    assert scripted.asked[0].reply_schema == make_enforceable_schema(schema) != schema


CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED | {"additionalProperties": False}, True),
        (CLOSED | {"additionalProperties": True}, False),
        (CLOSED | {"additionalProperties": False, "required": []}, False),
        ({"anyOf": [{"type": "string"}, CLOSED | {"additionalProperties": False}]}, False),
    ],
)
def test_openai_is_asked_to_be_strict_only_where_the_schema_is_closed(
    schema: dict[str, Any], strict: bool
) -> None:
    body = json.dumps({"choices": [{"message": {"content": "{}"}}]}).encode()
    with answering(200, body) as server:
        model_at("openai", server.base_url).complete(ChatRequest([user("Hi")], reply_schema=schema))
    sent = json.loads(server.last)["response_format"]
    assert sent == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": schema, "strict": strict},
    }


FAULTS = {
    "429": ErrorKind.RATE_LIMITED,
    "500": ErrorKind.SERVER_ERROR,
    "503": ErrorKind.OVERLOADED,
    "529": ErrorKind.OVERLOADED,
    "timeout": ErrorKind.TIMEOUT,
    "reset": ErrorKind.CONNECTION,
    "truncated": ErrorKind.CONNECTION,
    "invalid_json": ErrorKind.MALFORMED_REPLY,
    "context_length": ErrorKind.CONTEXT_LENGTH,
}


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_becomes_its_kind_after_exactly_one_request(vendor: str, fault: str) -> None:
    faults = Faults(rate=1.0, kinds=(fault,), hold_s=0.6, retry_after_s=0.25)
    timeout_s = 0.3 if fault == "timeout" else 10.0
    with serve(Scripted(calls(("weather", {"city": "Rome"}))), faults=faults) as server:
        with pytest.raises(ModelError) as caught:
            model_at(vendor, server.base_url, timeout_s=timeout_s).complete(ASK)
        assert server.requests == 1
    assert caught.value.kind is FAULTS[fault]
    assert caught.value.retry_after_s == (0.25 if fault == "429" else None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("vendor", VENDORS)
def test_arguments_without_their_last_bracket_are_read_with_it(vendor: str) -> None:
    faults = Faults(rate=1.0, kinds=("bad_arguments",))
    with serve(Scripted(calls(("weather", {"city": "Rome"}))), faults=faults) as server:
        made = model_at(vendor, server.base_url).complete(ASK).message["tool_calls"] or []
        assert server.requests == 1
    assert [(call.function, call.args) for call in made] == [("weather", {"city": "Rome"})]


def test_threads_forget_the_oldest_signatures_without_disturbing_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(google, "_MAX_SIGNATURES", 3)
    model, usual = model_at("google", "http://127.0.0.1:9"), sys.getswitchinterval()
    assert isinstance(model, google.GoogleModel)

    def remember(thread: int) -> None:
        for number in range(1000):
            model.restore({f"{thread}-{number}": "signature"})

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(remember, range(8)))
    finally:
        sys.setswitchinterval(usual)
    assert len(model._signatures) == 3
