"""The served model as Anthropic's SDK sees it."""

from __future__ import annotations

from typing import Any

from scripted_for_serving import WEATHER, Scripted, anthropic_client, calls, says

from agentsys.models.chat import ToolSpec, Usage, text_of
from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys.models.serving import serve

TOOLS: Any = [{"name": "weather", "description": "Tells.", "input_schema": WEATHER}]
USER: Any = {"role": "user", "content": "Hello"}


def test_plain_text_arrives_with_the_real_models_name_and_a_stop_reason() -> None:
    with serve(Scripted(says("Good day"))) as server:
        reply = anthropic_client(server).messages.create(model="claude", max_tokens=9, messages=[USER])
    assert [block.text for block in reply.content if block.type == "text"] == ["Good day"]
    assert (reply.stop_reason, reply.model) == ("end_turn", "scripted")


def test_request_fields_reach_the_model() -> None:
    model = Scripted(says("x"))
    with serve(model) as server:
        anthropic_client(server).messages.create(
            model="m",
            max_tokens=77,
            system=[{"type": "text", "text": "be brief"}],
            messages=[USER],
            tools=TOOLS,
            tool_choice={"type": "none"},
            extra_body={"temperature": 0.0},
            extra_headers={ROLE_HEADER: "worker"},
        )
    asked = model.asked[0]
    assert asked.tools == (ToolSpec("weather", "Tells.", WEATHER),)
    assert (asked.tool_choice, asked.temperature, asked.max_tokens) == ("none", 0.0, 77)
    assert asked.role == "worker"
    assert [(m["role"], text_of(m)) for m in asked.messages] == [("system", "be brief"), ("user", "Hello")]


def test_parallel_tool_calls_round_trip_with_results_in_one_user_message() -> None:
    model = Scripted(
        calls(("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"}), text="Looking"), says("Mild")
    )
    with serve(model) as server:
        client = anthropic_client(server)
        first = client.messages.create(model="m", max_tokens=9, messages=[USER], tools=TOOLS)
        uses = [block for block in first.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": uses[0].id, "content": "22"},
            {
                "type": "tool_result",
                "tool_use_id": uses[1].id,
                "content": [{"type": "text", "text": "no such city"}],
                "is_error": True,
            },
            {"type": "text", "text": "Go on"},
        ]
        blocks = [block.model_dump(exclude_none=True) for block in first.content]
        history = [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        client.messages.create(model="m", max_tokens=9, messages=history, tools=TOOLS)
    assert first.stop_reason == "tool_use"
    assert [use.input for use in uses] == [{"city": "Rome"}, {"city": "Oslo"}]
    told = model.asked[1].messages
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool", "user"]
    assert text_of(told[1]) == "Looking"
    assert [message["tool_call"].args["city"] for message in told[2:4]] == ["Rome", "Oslo"]
    assert (text_of(told[2]), told[2]["error"]) == ("22", None)
    assert (text_of(told[3]), told[3]["error"]) == ("", "no such city")
    assert text_of(told[4]) == "Go on"


def test_empty_reply_has_no_blocks() -> None:
    with serve(Scripted(says(None))) as server:
        reply = anthropic_client(server).messages.create(model="m", max_tokens=9, messages=[USER])
    assert reply.content == []


def test_usage_counts_cached_input_apart() -> None:
    used = Usage(prompt=100, completion=20, cached=60)
    with serve(Scripted(says("x", used))) as server:
        usage = anthropic_client(server).messages.create(model="m", max_tokens=9, messages=[USER]).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (40, 60, 20)


def test_a_streaming_client_gets_the_same_message() -> None:
    model = Scripted(calls(("weather", {"city": "Rome"}), text="Looking"))
    with serve(model) as server:
        client = anthropic_client(server)
        with client.messages.stream(model="m", max_tokens=9, messages=[USER], tools=TOOLS) as stream:
            message = stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[0].type == "text"
    assert message.content[0].text == "Looking"
    assert message.content[1].type == "tool_use"
    assert message.content[1].input == {"city": "Rome"}
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 0


def test_thinking_of_earlier_turns_is_left_out() -> None:
    model = Scripted(says("x"))
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turn = {"role": "assistant", "content": [thinking, {"type": "text", "text": "said"}]}
    with serve(model) as server:
        anthropic_client(server).messages.create(model="m", max_tokens=9, messages=[USER, turn, USER])  # type: ignore[list-item]
    assert text_of(model.asked[0].messages[1]) == "said"
