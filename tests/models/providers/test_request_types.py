"""What we send is what each vendor's own SDK declares, for every shipped model and kind of request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agentdojo.functions_runtime import FunctionCall
from anthropic.types import message_create_params
from google.genai import types as google_types
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from request_types import find_faults

from agentsys.models.build_model import build_provider, parse_card
from agentsys.models.chat import ChatRequest, ToolSpec, assistant, system, tool_message, user
from agentsys.models.providers import anthropic, openai, openai_wire
from agentsys.models.providers.google import GoogleModel

CONFIGS = Path(__file__).parents[3] / "configs" / "model"
OPEN = {"type": "object", "properties": {"to": {"type": "string"}}}
CLOSED = {**OPEN, "required": ["to"], "additionalProperties": False}
TOOLS = [
    ToolSpec("pay", "Pays.", OPEN),
    ToolSpec("get_balance", "Tells.", {"type": "object", "properties": {}}),
]
CALLS = [FunctionCall(function="pay", args={"to": "Bob", "cents": 5}, id=id_) for id_ in ("call_1", None)]
TURN = [
    system("Be brief."),
    user("Pay."),
    assistant("Paying.", CALLS),
    *(tool_message(call, "done", error) for call, error in zip(CALLS, (None, "no money"), strict=True)),
]
REQUESTS = {
    "a question": ChatRequest([user("Hi")]),
    "a first turn": ChatRequest(TURN[:2], TOOLS, max_tokens=50, temperature=0.5),
    "results": ChatRequest(TURN, TOOLS),
    "results without tools": ChatRequest(TURN),
    "tools that may not be called": ChatRequest(TURN, TOOLS, tool_choice="none"),
    "an open schema": ChatRequest(TURN[:2], reply_schema=OPEN),
    "a closed schema": ChatRequest(TURN[:2], reply_schema=CLOSED),
    "a form": ChatRequest(TURN[:2], form_schema=CLOSED),
    "probabilities": ChatRequest(TURN[:2], logprobs=5),
}


def own_thoughts() -> dict[str, Any]:
    """Per wire a reply with thoughts, which goes back."""
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    chat = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"}
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    made = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"}
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "tool_use", "id": "c1", "name": "pay", "input": {}},
    ]
    body = {"choices": [{"message": chat, "finish_reason": "tool_calls"}]}
    return {
        "chat": openai_wire.read_openai_reply(body).message,
        "responses": openai.read_responses_reply({"status": "completed", "output": [item, made]}).message,
        "anthropic": anthropic.read_anthropic_reply(
            {"type": "message", "content": blocks, "stop_reason": "tool_use"}
        ).message,
    }


THOUGHTS = own_thoughts()


def shipped() -> Iterator[Any]:
    for path in sorted(CONFIGS.glob("*.yaml")):
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
        if ".providers." in fields["_target_"] and "litellm" not in fields["_target_"]:
            yield pytest.param(
                {**fields, "api_key_env": None, "base_url": "http://127.0.0.1:9"}, id=path.stem
            )


def bodies(model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    wire = getattr(model, "api", "anthropic" if isinstance(model, anthropic.AnthropicModel) else "")
    thought = THOUGHTS.get(wire)
    more = (
        {}
        if thought is None
        else {"thoughts": ChatRequest([user("Pay."), thought, *_answers(thought)], TOOLS)}
    )
    for name, request in {**REQUESTS, **more}.items():
        built = model._build_body(request)
        yield name, json.loads(built) if isinstance(built, bytes) else json.loads(json.dumps(built))


def _answers(thought: Any) -> list[Any]:
    return [tool_message(call, "done") for call in thought["tool_calls"]]


CHAT_EXTRAS = {"chat_template_kwargs", "top_k", "thinking"}
"""Fields for a server's own use, which a shipped file names in `extra_body`."""


def take_known_extras(body: dict[str, Any], extra: dict[str, Any]) -> None:
    """Take out what other servers of chat completions know and OpenAI's SDK does not, where it belongs alone."""
    for name in CHAT_EXTRAS & extra.keys():
        body.pop(name)
    for message in body["messages"]:
        if message["role"] == "tool":
            message.pop("name", None)  # chat templates of local models use it
        if message["role"] == "assistant":
            message.pop("reasoning_content", message.pop("reasoning", None))
        if message["role"] == "input":  # Meta-SecAlign's role of results
            message["role"] = "user"


def declared_type(model: Any) -> Any:
    if isinstance(model, anthropic.AnthropicModel):
        return message_create_params.MessageCreateParamsNonStreaming
    if model.api == "responses":
        return response_create_params.ResponseCreateParamsNonStreaming
    return completion_create_params.CompletionCreateParamsNonStreaming


def faults_for_google(body: dict[str, Any]) -> list[str]:
    """The REST body by the SDK's own types of its parts; their names in JSON are those of the API."""
    parts = {
        "contents": list[google_types.Content],
        "systemInstruction": google_types.Content,
        "tools": list[google_types.Tool],
        "toolConfig": google_types.ToolConfig,
        "generationConfig": google_types.GenerationConfig,
        "safetySettings": list[google_types.SafetySetting],
    }
    unknown = [f"body.{name}: unknown" for name in body.keys() - parts.keys()]
    return unknown + [
        f for name, value in body.items() if name in parts for f in find_faults(value, parts[name], name)
    ]


def faults_of(model: Any, body: dict[str, Any]) -> list[str]:
    if isinstance(model, GoogleModel):
        return faults_for_google(body)
    if isinstance(model, anthropic.AnthropicModel):
        # Of the version of the API that we ask for; the SDK's types have it no more from 2.0 on.
        assert isinstance(body.pop("temperature", 0.0), float)
    if getattr(model, "api", "") == "chat":
        take_known_extras(body, dict(model.extra_body or {}))
    return find_faults(body, declared_type(model))


@pytest.mark.parametrize("fields", shipped())
def test_every_request_of_a_shipped_model_is_one_by_its_vendors_types(fields: dict[str, Any]) -> None:
    model = build_provider(fields, parse_card(fields))
    for name, body in bodies(model):
        assert faults_of(model, body) == [], name


GOOGLE = {
    "_target_": "agentsys.models.providers.google.GoogleModel",
    "name": "m",
    "prose_name": "M",
    "model_id": "m-1",
    "base_url": "http://127.0.0.1:9",
}


@pytest.mark.parametrize(
    "extra",
    [
        {"top_p": 0.9},
        {"topP": 0.9},
        {"generationConfig": {"top_p": 0.9}},
        {"generationConfig": {"seed": "1x"}},
        {"contents": [{"role": "user", "parts": [{"txt": "Hi"}]}]},
    ],
)
def test_a_field_in_the_wrong_place_is_found(extra: dict[str, Any]) -> None:
    fields = {**GOOGLE, "extra_body": extra}
    model: Any = build_provider(fields, parse_card(fields))
    assert faults_of(model, dict(bodies(model))["a question"])
    right = {**GOOGLE, "extra_body": {"generationConfig": {"topP": 0.9, "seed": 1}}}
    model = build_provider(right, parse_card(right))
    assert not faults_of(model, dict(bodies(model))["a question"])


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        (message_create_params.MessageCreateParamsNonStreaming, {"model": "m", "messages": []}),
        (
            message_create_params.MessageCreateParamsNonStreaming,
            {"model": "m", "max_tokens": 5, "messages": [{"role": "system", "content": 5}]},
        ),
        (
            completion_create_params.CompletionCreateParamsNonStreaming,
            {"model": "m", "messages": [{"role": "tool", "content": "x"}]},
        ),
        (
            completion_create_params.CompletionCreateParamsNonStreaming,
            {"model": "m", "messages": [{"role": "user", "content": "x", "topP": 1}]},
        ),
        (
            response_create_params.ResponseCreateParamsNonStreaming,
            {"model": "m", "input": [], "max_tokens": 5},
        ),
    ],
)
def test_the_types_of_sdks_refuse_what_is_missing_or_unknown(declared: Any, body: dict[str, Any]) -> None:
    assert find_faults(body, declared)
