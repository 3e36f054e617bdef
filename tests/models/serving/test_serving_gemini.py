"""The served model as Google's SDK sees it."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types
from scripted_for_serving import WEATHER, Scripted, calls, generate, google_client, says

from agentsys.models.chat import ToolSpec, Usage, text_of
from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys.models.serving import serve

AS_JSON_SCHEMA = types.FunctionDeclaration(
    name="weather", description="Tells.", parameters_json_schema=WEATHER
)
AS_GOOGLE_SCHEMA = types.FunctionDeclaration(
    name="weather", description="Tells.", parameters=types.Schema.model_validate(WEATHER)
)


def config(declaration: types.FunctionDeclaration = AS_JSON_SCHEMA, **more: Any) -> Any:
    return types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declaration])], **more)


def user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part.from_text(text=text)])


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_plain_text_arrives_with_the_real_models_name_under_either_version(version: str) -> None:
    with serve(Scripted(says("Good day"))) as server:
        client = google_client(server, api_version=version)
        reply = client.models.generate_content(model="gemini", contents="Hello")
    assert reply.text == "Good day"
    assert reply.model_version == "scripted"
    assert reply.candidates
    assert reply.candidates[0].finish_reason == types.FinishReason.STOP


@pytest.mark.parametrize("declaration", [AS_JSON_SCHEMA, AS_GOOGLE_SCHEMA])
def test_request_fields_reach_the_model(declaration: types.FunctionDeclaration) -> None:
    model = Scripted(says("x"))
    none = types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.NONE)
    )
    options = config(
        declaration,
        system_instruction="be brief",
        temperature=0.0,
        max_output_tokens=77,
        tool_config=none,
        response_json_schema=WEATHER,
        response_mime_type="application/json",
    )
    with serve(model) as server:
        client = google_client(server, headers={ROLE_HEADER: "sanitizer"})
        client.models.generate_content(model="m", contents="Hello", config=options)
    asked = model.asked[0]
    assert asked.tools == (ToolSpec("weather", "Tells.", WEATHER),)
    assert (asked.tool_choice, asked.temperature, asked.max_tokens) == ("none", 0.0, 77)
    assert (asked.role, asked.reply_schema) == ("sanitizer", WEATHER)
    assert [(m["role"], text_of(m)) for m in asked.messages] == [("system", "be brief"), ("user", "Hello")]


@pytest.mark.parametrize("with_ids", [True, False])
def test_parallel_tool_calls_round_trip_with_and_without_ids(with_ids: bool) -> None:
    model = Scripted(calls(("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})), says("Mild"))
    with serve(model) as server:
        client = google_client(server)
        first = client.models.generate_content(model="m", contents="Hello", config=config())
        made = first.function_calls or []
        assert [call.args for call in made] == [{"city": "Rome"}, {"city": "Oslo"}]
        if not with_ids:
            made = [call.model_copy(update={"id": None}) for call in made]
        responses: list[dict[str, Any]] = [{"result": "22"}, {"error": "no such city"}]
        history = [
            user("Hello"),
            types.Content(role="model", parts=[types.Part(function_call=call) for call in made]),
            types.Content(
                role="user",
                parts=[
                    types.Part(function_response=types.FunctionResponse(id=c.id, name=c.name, response=r))
                    for c, r in zip(made, responses, strict=True)
                ],
            ),
        ]
        assert client.models.generate_content(model="m", contents=history, config=config()).text == "Mild"
    told = model.asked[1].messages
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool"]
    assert [message["tool_call"].args["city"] for message in told[2:]] == ["Rome", "Oslo"]
    assert [(text_of(m), m["error"]) for m in told[2:]] == [("22", None), ("", "no such city")]


def test_structured_function_responses_become_json_text() -> None:
    model = Scripted(says("x"))
    call = types.FunctionCall(name="weather", args={})
    answered = types.FunctionResponse(name="weather", response={"degrees": 22, "wind": [1, 2]})
    history = [
        user("Hello"),
        types.Content(role="model", parts=[types.Part(function_call=call)]),
        types.Content(role="user", parts=[types.Part(function_response=answered)]),
    ]
    with serve(model) as server:
        generate(server, contents=history)
    assert text_of(model.asked[0].messages[2]) == '{"degrees":22,"wind":[1,2]}'


def test_empty_reply_has_no_parts() -> None:
    with serve(Scripted(says(None))) as server:
        reply = generate(server, contents="Hello")
    assert reply.text is None
    assert not reply.function_calls


def test_usage_counts_thoughts_apart() -> None:
    used = Usage(prompt=100, completion=20, cached=60, reasoning=5)
    with serve(Scripted(says("x", used))) as server:
        usage = generate(server, contents="Hello").usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (100, 60)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (15, 5)
