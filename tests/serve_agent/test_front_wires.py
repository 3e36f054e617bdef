"""The vendors' own SDKs, each with a task of two tools that are called together, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from front_clients import desk_of
from google.genai import types
from scripted_for_serving import anthropic_client, calls, google_client, openai_client, says

from agentsys.models.chat import ChatReply, ChatRequest, text_of
from agentsys.models.serving import Server, serve
from baselines.none import NoDefense

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANSWER = "weather: sunny in Rome; time: noon in Rome"
TOLD = {"weather": "sunny in Rome", "time": "noon in Rome"}
WAIT_S = 120.0


class Clerk:
    """Asks both tools at once, and then says what they told it."""

    name = "clerk"

    def complete(self, request: ChatRequest) -> ChatReply:
        results = [m for m in request.messages if m["role"] == "tool"]
        if not results:
            return calls(("weather", {"city": "Rome"}), ("time", {"city": "Rome"}))
        return says("; ".join(f"{m['tool_call'].function}: {text_of(m)}" for m in results))


@pytest.fixture
def server() -> Iterator[Server]:
    desk = desk_of(Clerk(), NoDefense())
    with serve(desk) as running:
        yield running
    desk.stop()
    assert desk.running_count == 0


@pytest.mark.parametrize("stream", [False, True])
def test_openais_chat_completions(server: Server, stream: bool) -> None:
    client = openai_client(server, WAIT_S)
    tools: Any = [
        {"type": "function", "function": {"name": name, "description": name, "parameters": CITY}}
        for name in TOLD
    ]
    messages: list[Any] = [{"role": "user", "content": "How is Rome?"}]
    for _ in range(2):
        asked: Any = {"model": "m", "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in message.tool_calls or ():
            said = TOLD[call.function.name]  # type: ignore[union-attr]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
    assert message.content == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_openais_responses(server: Server, stream: bool) -> None:
    client = openai_client(server, WAIT_S)
    tools: Any = [{"type": "function", "name": n, "description": n, "parameters": CITY} for n in TOLD]
    items: list[Any] = [{"role": "user", "content": "How is Rome?"}]
    for _ in range(2):
        asked: Any = {"model": "m", "input": items, "tools": tools}
        if stream:
            with client.responses.stream(**asked) as events:
                response: Any = events.get_final_response()
        else:
            response = client.responses.create(**asked)
        items += [item.model_dump(exclude_none=True) for item in response.output]
        for item in response.output:
            if item.type == "function_call":
                told = TOLD[item.name]
                items.append({"type": "function_call_output", "call_id": item.call_id, "output": told})
    assert response.output_text == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_messages(server: Server, stream: bool) -> None:
    client = anthropic_client(server, WAIT_S)
    tools: Any = [{"name": name, "description": name, "input_schema": CITY} for name in TOLD]
    messages: list[Any] = [{"role": "user", "content": "How is Rome?"}]
    for _ in range(2):
        asked: Any = {"model": "m", "max_tokens": 99, "messages": messages, "tools": tools}
        if stream:
            with client.messages.stream(**asked) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(**asked)
        messages.append({"role": "assistant", "content": [b.model_dump() for b in message.content]})
        used = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": u.id, "content": TOLD[u.name]} for u in used]
        if results:
            messages.append({"role": "user", "content": results})
    assert message.content[0].text == ANSWER


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ids", [True, False])
def test_googles_contents_with_ids_and_without(server: Server, stream: bool, ids: bool) -> None:
    client = google_client(server, WAIT_S)
    offered = [types.FunctionDeclaration(name=n, description=n, parameters_json_schema=CITY) for n in TOLD]
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=offered)])
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="How is Rome?")])]
    for _ in range(2):
        asked: Any = {"model": "m", "contents": contents, "config": config}
        if stream:
            [reply] = list(client.models.generate_content_stream(**asked))
        else:
            reply = client.models.generate_content(**asked)
        made: list[Any] = list(reply.function_calls or ())
        said = [types.Part.from_function_call(name=call.name, args=call.args) for call in made]
        for part, call in zip(said, made, strict=True):
            part.function_call.id = call.id if ids else None  # type: ignore[union-attr]
        contents.append(types.Content(role="model", parts=said))
        results = [
            types.Part.from_function_response(name=call.name, response={"result": TOLD[call.name]})
            for call in made
        ]
        for part, call in zip(results, made, strict=True):
            part.function_response.id = call.id if ids else None  # type: ignore[union-attr]
        contents.append(types.Content(role="user", parts=results))
    assert reply.text == ANSWER


def test_a_conversation_has_one_trace_and_refusals_are_in_the_vendors_form(server: Server) -> None:
    client = openai_client(server, WAIT_S)
    tools: Any = [
        {"type": "function", "function": {"name": name, "description": name, "parameters": CITY}}
        for name in TOLD
    ]
    messages: list[Any] = [{"role": "user", "content": "How is Rome?"}]
    first = client.chat.completions.with_raw_response.create(model="m", messages=messages, tools=tools)
    message = first.parse().choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": "x"} for call in message.tool_calls or ()
    ]
    thief = openai.OpenAI(api_key="another", base_url=server.openai_base_url, max_retries=0)
    with pytest.raises(openai.APIStatusError) as refused:
        thief.chat.completions.create(model="m", messages=messages, tools=tools)
    assert (refused.value.status_code, refused.value.code) == (410, "unknown_conversation")
    second = client.chat.completions.with_raw_response.create(model="m", messages=messages, tools=tools)
    assert first.headers["x-agentsys-trace"] == second.headers["x-agentsys-trace"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://example.org"}, 403),
        ({"Host": "example.org"}, 403),
        ({"Host": "localhost:8321"}, 200),
        ({}, 200),
    ],
)
def test_web_pages_are_refused_without_a_token(server: Server, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    url = f"{server.openai_base_url}/chat/completions"
    assert httpx.post(url, content=body, headers=headers, timeout=WAIT_S).status_code == status
    assert (
        httpx.get(f"{server.openai_base_url}/models", headers=headers, timeout=WAIT_S).status_code == status
    )
