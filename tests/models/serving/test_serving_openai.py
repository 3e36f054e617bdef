"""The served model as OpenAI's SDK sees it."""

from __future__ import annotations

import json
from typing import Any

from scripted_for_serving import WEATHER, Scripted, calls, openai_client, says
from served_faults import serve

from agentsys.models.chat import ToolSpec, Usage, text_of
from agentsys.models.pricing import TOKENS_PER_MESSAGE
from agentsys.models.providers.sdk_model import ROLE_HEADER

TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Tells.", "parameters": WEATHER}}
]
USER: Any = {"role": "user", "content": "Hello"}


def test_plain_text_arrives_with_the_real_models_name_and_a_finish_reason() -> None:
    with serve(Scripted(says("Good day"))) as server:
        reply = openai_client(server).chat.completions.create(model="gpt-4o", messages=[USER])
    assert reply.choices[0].message.content == "Good day"
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "scripted"
    assert server.requests == 1


def test_request_fields_reach_the_model() -> None:
    model = Scripted(says("{}"))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with serve(model) as server:
        openai_client(server).chat.completions.create(  # type: ignore[call-overload]
            model="m",
            messages=[USER],
            tools=TOOLS,
            tool_choice="none",
            temperature=0.0,
            max_completion_tokens=77,
            response_format={"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}},
        )
    asked = model.asked[0]
    assert asked.tools == (ToolSpec("weather", "Tells.", WEATHER),)
    assert (asked.tool_choice, asked.temperature, asked.max_tokens) == ("none", 0.0, 77)
    assert asked.reply_schema == schema
    assert asked.role == "agent"


def test_absent_fields_stay_absent() -> None:
    model = Scripted(says("x"))
    with serve(model) as server:
        openai_client(server).chat.completions.create(model="m", messages=[USER])
    asked = model.asked[0]
    assert (asked.tools, asked.temperature, asked.max_tokens, asked.reply_schema) == ((), None, None, None)
    assert asked.tool_choice == "auto"


def test_parallel_tool_calls_arrive_in_order_with_ids_of_their_own() -> None:
    model = Scripted(calls(("weather", {"city": "Rome"}), ("weather", {"city": "Zürich"})))
    with serve(model) as server:
        choice = (
            openai_client(server).chat.completions.create(model="m", messages=[USER], tools=TOOLS).choices[0]
        )
    made = choice.message.tool_calls or []
    assert [json.loads(call.function.arguments)["city"] for call in made] == ["Rome", "Zürich"]  # type: ignore[union-attr]
    assert len({call.id for call in made}) == 2
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None


def test_call_ids_repeat_between_servers_but_not_between_requests() -> None:
    def ids_of(text: str) -> list[str]:
        with serve(Scripted(calls(("weather", {"city": "Rome"})))) as server:
            client = openai_client(server)
            message = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        return [call.id for call in message.choices[0].message.tool_calls or []]

    assert ids_of("a") == ids_of("a")
    assert ids_of("a") != ids_of("b")


def test_tool_round_trip_gives_the_model_back_its_own_call() -> None:
    model = Scripted(calls(("weather", {"city": "Rome"}), ids=["mine"]), says("Sunny"))
    with serve(model) as server:
        client = openai_client(server)
        first = client.chat.completions.create(model="m", messages=[USER], tools=TOOLS).choices[0].message
        result = {"role": "tool", "tool_call_id": "mine", "content": [{"type": "text", "text": "22 degrees"}]}
        reply = client.chat.completions.create(
            model="m",
            messages=[USER, first.model_dump(exclude_none=True), result],  # type: ignore[list-item]
            tools=TOOLS,  # type: ignore[list-item]
        )
    assert reply.choices[0].message.content == "Sunny"
    told = model.asked[1].messages
    assert [message["role"] for message in told] == ["user", "assistant", "tool"]
    assert text_of(told[2]) == "22 degrees"
    assert told[2]["tool_call"].function == "weather"
    assert told[2]["tool_call"].args == {"city": "Rome"}
    assert told[2]["tool_call_id"] == "mine"
    assert told[2]["error"] is None


def test_system_and_developer_messages_and_all_shapes_of_content_are_understood() -> None:
    model = Scripted(says("x"))
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    with serve(model) as server:
        openai_client(server).chat.completions.create(
            model="m",
            messages=[
                {"role": "system", "content": "be brief"},
                {"role": "developer", "content": parts},  # type: ignore[list-item, misc]
                {"role": "user", "content": parts},  # type: ignore[list-item, misc]
                {"role": "assistant", "content": None},
            ],
        )
    told = model.asked[0].messages
    assert [message["role"] for message in told] == ["system", "system", "user", "assistant"]
    assert [text_of(message) for message in told] == ["be brief", "one\ntwo", "one\ntwo", ""]
    assert told[3]["content"] is None
    assert told[3]["tool_calls"] is None


def test_empty_reply_has_null_content() -> None:
    with serve(Scripted(says(None))) as server:
        message = openai_client(server).chat.completions.create(model="m", messages=[USER]).choices[0].message
    assert message.content is None
    assert not message.tool_calls


def test_role_travels_in_the_header() -> None:
    model = Scripted(says("True"))
    with serve(model) as server:
        openai_client(server).chat.completions.create(
            model="m", messages=[USER], extra_headers={ROLE_HEADER: "validator"}
        )
    assert model.asked[0].role == "validator"


def test_usage_the_model_reports_is_passed_on() -> None:
    used = Usage(prompt=100, completion=20, cached=60, reasoning=5)
    with serve(Scripted(says("x", used))) as server:
        usage = openai_client(server).chat.completions.create(model="m", messages=[USER]).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 60
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 5


def test_usage_is_estimated_from_characters_where_the_model_reports_none() -> None:
    with serve(Scripted(says("y" * 35))) as server:
        usage = openai_client(server).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x" * 3500}]
        )
    assert usage.usage is not None
    assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (
        1000 + TOKENS_PER_MESSAGE,
        10 + TOKENS_PER_MESSAGE,
    )


def test_models_are_listed() -> None:
    with serve(Scripted(says("x"))) as server:
        assert [model.id for model in openai_client(server).models.list()] == ["scripted"]
