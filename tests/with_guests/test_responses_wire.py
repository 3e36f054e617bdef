"""OpenAI's Responses API: what is sent, what is read, and that reasoning goes back in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from providers_under_test import answering, model_at
from scripted_for_serving import WEATHER, Scripted, calls, says
from served_faults import serve

from agentsys.models.chat import (
    UNCOUNTED,
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    ToolSpec,
    Usage,
    system,
    text_of,
    user,
)
from agentsys.models.providers.openai import build_responses_items, read_responses_reply
from agentsys.models.wrappers.reply_cache import CachingModel, ReplyStore, RequestKeys

TOOLS = (ToolSpec("weather", "Tells.", WEATHER),)
USAGE = {
    "input_tokens": 90,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 20},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 25},
    "total_tokens": 120,
}


def reasoning(number: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": f"gAAA{number}",
        **more,
    }


def function_call(number: int) -> dict[str, Any]:
    about = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "status": "completed",
    }
    return {**about, "name": "weather", "arguments": json.dumps({"city": f"c{number}"})}


def said(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": list(output),
        "usage": USAGE,
        **more,
    }


def result_of(call: FunctionCall) -> Any:
    block = {"type": "text", "content": "22 degrees"}
    return {"role": "tool", "content": [block], "tool_call": call, "tool_call_id": call.id, "error": None}


PARALLEL = read_responses_reply(
    response(
        reasoning(1), said("I look.", phase="commentary"), reasoning(2), function_call(1), function_call(2)
    )
).message
FIRST, SECOND = list(PARALLEL["tool_calls"] or [])


def kinds(items: list[dict[str, Any]]) -> list[str]:
    return [str(item.get("call_id") or item.get("id") or item["role"]) for item in items]


def test_the_request_is_in_items_keeps_nothing_and_asks_for_the_reasoning() -> None:
    with answering(200, json.dumps(response(said("Hi"))).encode()) as server:
        model = model_at("openai", server.base_url, api="responses", reasoning_effort="low", temperature=None)
        schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        asked = ChatRequest([system("Be brief."), user("Hi")], TOOLS, max_tokens=50, reply_schema=schema)
        model.complete(asked)
    assert json.loads(server.last) == {
        "model": "m-1",
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "store": False,
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 50,
        "text": {"format": {"type": "json_schema", "name": "reply", "schema": schema, "strict": True}},
        "tool_choice": "auto",
        "tools": [
            {"type": "function", "name": "weather", "description": "Tells.", "parameters": WEATHER,
             "strict": False},
        ],
    }  # fmt: skip


def test_every_reasoning_item_goes_back_right_before_what_it_led_to() -> None:
    items = build_responses_items([user("x"), PARALLEL, result_of(FIRST), result_of(SECOND)], "developer")
    assert kinds(items) == ["user", "rs_1", "assistant", "rs_2", "call_1", "call_2", "call_1", "call_2"]
    assert items[1] == reasoning(1)
    assert items[2] == {"role": "assistant", "content": "I look.", "phase": "commentary"}
    assert items[4]["type"] == "function_call" and "id" not in items[4]
    assert items[6] == {"type": "function_call_output", "call_id": "call_1", "output": "22 degrees"}


def test_reasoning_goes_with_the_call_that_a_defense_takes_away() -> None:
    without_first: Any = {**PARALLEL, "tool_calls": [SECOND]}
    assert kinds(build_responses_items([without_first], "system")) == ["rs_1", "assistant", "call_2"]
    without_calls: Any = {**PARALLEL, "tool_calls": None}
    assert kinds(build_responses_items([without_calls], "system")) == ["rs_1", "assistant"]
    thoughts = [block for block in PARALLEL["content"] or () if block["type"] != "text"]
    without_text: Any = {"role": "assistant", "content": thoughts, "tool_calls": None}
    assert build_responses_items([without_text], "system") == []


def test_thoughts_are_no_part_of_the_answer_and_their_summary_is_kept() -> None:
    told = reasoning(1, summary=[{"type": "summary_text", "text": "hm"}])
    message = read_responses_reply(response(told, said("Done."))).message
    assert text_of(message) == "Done."
    assert (message["content"] or [{}])[0]["content"] == "hm"  # type: ignore[typeddict-item]


def test_usage_is_read_with_its_parts_and_a_missing_one_is_unknown() -> None:
    assert read_responses_reply(response(said("x"))).usage == Usage(90, 30, 40, 25, written=20)
    assert read_responses_reply(response(said("x"), usage=None)).usage == UNCOUNTED


def _error(body: dict[str, Any]) -> ModelError:
    with answering(200, json.dumps(body).encode()) as server, pytest.raises(ModelError) as caught:
        model_at("openai", server.base_url, api="responses").complete(ChatRequest([user("x")]))
    return caught.value


def test_what_ends_a_response_early_is_told_apart() -> None:
    def incomplete(reason: str) -> dict[str, Any]:
        return {"status": "incomplete", "incomplete_details": {"reason": reason}}

    cut = response(reasoning(1), **incomplete("max_output_tokens"))
    half = {**function_call(1), "arguments": '{"ci', "status": "incomplete"}
    for body in (cut, response(half, **incomplete("max_output_tokens"))):
        reply = read_responses_reply(body)
        assert (reply.cut, reply.message["tool_calls"], text_of(reply.message)) == (True, None, "")
    assert _error(response(**incomplete("content_filter"))).kind is ErrorKind.CONTENT_REFUSED
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    assert _error(response(**failed)).kind is ErrorKind.RATE_LIMITED
    assert _error({"status": "completed", "output": None}).kind is ErrorKind.MALFORMED_REPLY


@pytest.mark.parametrize(
    "output", [[5, None], [{"type": "function_call"}], [{"type": "message", "content": 5}]]
)
def test_odd_items_break_nothing(output: list[Any]) -> None:
    try:
        reply = read_responses_reply({"output": output})
    except ModelError as error:
        assert error.kind is ErrorKind.MALFORMED_REPLY
    else:
        assert text_of(reply.message) == ""


def test_two_turns_of_calls_through_a_server_as_strict_as_the_real_one() -> None:
    scripted = Scripted(
        calls(("weather", {"city": "Rome"}), ("weather", {"city": "Bonn"}), text="I look."),
        calls(("weather", {"city": "Oslo"})),
        says("Fine.", Usage(100, 20, 60, 5)),
    )
    messages: list[Any] = [system("Be brief."), user("Weather?")]
    with serve(scripted) as server:
        model = model_at("openai", server.base_url, api="responses", reasoning_effort="low")
        for _ in range(2):
            reply = model.complete(ChatRequest(messages, TOOLS))
            messages += [reply.message, *map(result_of, reply.message["tool_calls"] or ())]
        last: ChatReply = model.complete(ChatRequest(messages, TOOLS))
    assert (text_of(last.message), last.usage) == ("Fine.", Usage(100, 20, 60, 5))
    told = scripted.asked[2].messages
    assert [message["role"] for message in told] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert [call.args["city"] for call in told[2]["tool_calls"] or ()] == ["Rome", "Bonn"]  # type: ignore[union-attr,typeddict-item]
    assert text_of(told[2]) == "I look."
    assert scripted.asked[2].tools == TOOLS


def test_a_case_resumed_from_the_cache_sends_the_same_bytes(tmp_path: Path) -> None:
    turns = (
        calls(("weather", {"city": "Rome"}), ("weather", {"city": "Bonn"}), text="I look."),
        says("Fine."),
    )

    def played(model: Any, most: int) -> None:
        messages: list[Any] = [system("Be brief."), user("Weather?")]
        for _ in range(most):
            reply = model.complete(ChatRequest(messages, TOOLS))
            messages += [reply.message, *map(result_of, reply.message["tool_calls"] or ())]

    with serve(Scripted(*turns)) as server:

        def model(folder: str) -> CachingModel:
            provider = model_at("openai", server.base_url, api="responses", reasoning_effort="low")
            return CachingModel(provider, ReplyStore(tmp_path / folder), RequestKeys({}))

        played(model("cut"), 1)
        played(model("cut"), 2)
        first, resumed = (one.body for one in server.captured)
    with serve(Scripted(*turns)) as server:
        played(model("whole"), 2)
        whole = [one.body for one in server.captured]
    assert [first, resumed] == whole and b'"type":"reasoning"' in resumed
