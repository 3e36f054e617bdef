"""OpenAI's Responses API of a served model: streamed, and failing on purpose, as the SDK sees it."""

from __future__ import annotations

from typing import Any

import httpx
import httpx2
import openai
import pytest
from scripted_for_serving import WEATHER, Scripted, calls, openai_client, says

from agentsys.models.chat import ChatRequest, ErrorKind, ModelError, user
from agentsys.models.providers.openai import OpenAIModel
from agentsys.models.serving import Faults, Server, serve
from agentsys.models.serving.faults import FaultKind

TOOLS: Any = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}]


def test_a_streaming_client_gets_the_same_response() -> None:
    model = Scripted(calls(("weather", {"city": "Rome"}), text="Looking"))
    with serve(model) as server:
        client = openai_client(server)
        with client.responses.stream(model="m", input="Hi", tools=TOOLS) as stream:
            kinds = [event.type for event in stream]
            response = stream.get_final_response()
        whole = client.responses.create(model="m", input="Hi", tools=TOOLS)
    assert [item.type for item in response.output] == [item.type for item in whole.output]
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    assert response.output_text == "Looking" and response.output[2].arguments == '{"city":"Rome"}'  # type: ignore[union-attr]
    assert response.usage is not None and response.usage.output_tokens > 0
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert {"response.output_text.delta", "response.function_call_arguments.done"} <= set(kinds)


def test_events_are_numbered_and_the_text_stands_in_its_deltas() -> None:
    with serve(Scripted(says("Hello."))) as server:
        client = openai_client(server)
        events = list(client.responses.create(model="m", input="Hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello."


def test_a_stream_that_is_cut_is_no_response() -> None:
    cut = Faults(rate=1.0, kinds=("truncated",), max_in_a_row=1000)
    with serve(Scripted(says("Hello, " * 50)), faults=cut) as server:
        client = openai_client(server)
        broken = (openai.APIError, httpx.TransportError, httpx2.TransportError, AssertionError)
        with pytest.raises(broken):
            events = list(client.responses.create(model="m", input="Hi", stream=True))
            assert events[-1].type == "response.completed"


def asked(server: Server) -> Any:
    model = OpenAIModel(
        "m", "m-1", None, base_url=server.openai_base_url, api="responses", timeout_s=20.0, temperature=None
    )
    request = ChatRequest([user("Hi")], tools=[])
    return model.complete(request)


KINDS = {
    "429": ErrorKind.RATE_LIMITED,
    "500": ErrorKind.SERVER_ERROR,
    "503": ErrorKind.OVERLOADED,
    "529": ErrorKind.OVERLOADED,
    "timeout": ErrorKind.CONNECTION,
    "reset": ErrorKind.CONNECTION,
    "truncated": ErrorKind.CONNECTION,
    "invalid_json": ErrorKind.MALFORMED_REPLY,
    "bad_arguments": ErrorKind.MALFORMED_REPLY,
    "context_length": ErrorKind.CONTEXT_LENGTH,
}


@pytest.mark.parametrize(("fault", "kind"), KINDS.items())
def test_every_fault_is_a_defined_error_here_too(fault: str, kind: ErrorKind) -> None:
    always = Faults(rate=1.0, kinds=(fault,), max_in_a_row=1000, hold_s=0.05)
    model = Scripted(calls(("weather", {"city": "Rome"})))
    with serve(model, faults=always) as server, pytest.raises(ModelError) as raised:
        asked(server)
    assert raised.value.kind is kind


def test_an_empty_reply_and_an_unknown_tool_are_replies() -> None:
    seen = {}
    for fault in (FaultKind.EMPTY_REPLY, FaultKind.UNKNOWN_TOOL):
        always = Faults(rate=1.0, kinds=(fault,), max_in_a_row=1000)
        with serve(Scripted(calls(("weather", {"city": "Rome"}))), faults=always) as server:
            seen[fault] = asked(server).message
    assert not seen[FaultKind.EMPTY_REPLY]["tool_calls"] and not seen[FaultKind.EMPTY_REPLY]["content"]
    (call,) = seen[FaultKind.UNKNOWN_TOOL]["tool_calls"]
    assert call.function == "weather_unknown"
