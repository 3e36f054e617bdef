"""An agent whose tools stand in the prompt, over Anthropic's wire, which wants tools after calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import ChatRequest, assistant, system, user
from agentsys.models.providers.anthropic import AnthropicModel


@pytest.fixture
def model() -> AnthropicModel:
    return AnthropicModel("m", "m-1", None, max_tokens=100, base_url="http://127.0.0.1:9")


def body(model: AnthropicModel, request: ChatRequest) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(model._encode_body(request))
    return sent


def test_past_calls_bring_stand_ins_that_may_not_be_called(model: AnthropicModel) -> None:
    call = FunctionCall(function="pay", args={"to": "Bob"}, id="1")
    result: Any = {"role": "tool", "content": None, "tool_call": call, "tool_call_id": "1", "error": None}
    messages = [system("Rules."), user("Pay."), assistant("Paying.", [call, call]), result, result]
    sent = body(model, ChatRequest(messages))
    assert sent["tools"] == [{"name": "pay", "input_schema": {"type": "object"}}]
    assert sent["tool_choice"] == {"type": "none"}


def test_a_request_without_tools_or_calls_is_sent_without_tools(model: AnthropicModel) -> None:
    assert not {"tools", "tool_choice"} & set(body(model, ChatRequest([user("Hello.")])))
