"""Names of tools and parameters, and ids of calls, go to providers as these take them, and come back as they were."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from hypothesis import given
from hypothesis import strategies as st
from providers_under_test import answering, model_at

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, user
from agentsys.models.providers.openai_wire import build_openai_messages
from agentsys.models.providers.reply_reader import clean_name
from agentsys.models.providers.sdk_model import WireNames

TAKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def tool(name: str, *parameters: str) -> ToolSpec:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return ToolSpec(
        name, "A tool.", {"type": "object", "properties": properties, "required": list(parameters)}
    )


NAMES = st.text(min_size=1, max_size=80)


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.lists(NAMES, max_size=4, unique=True))
def test_every_name_is_written_as_providers_take_it_and_comes_back(
    tools: list[str], parameters: list[str]
) -> None:
    request = ChatRequest([user("Hi")], [tool(name, *parameters) for name in tools])
    names = WireNames.find(request)
    sent = request if names is None else names.write_request(request)
    written = [one.name for one in sent.tools]
    assert len(set(written)) == len(tools) and all(map(TAKEN.fullmatch, written))
    for one, own in zip(sent.tools, request.tools, strict=True):
        keys = list(one.parameters["properties"])
        assert len(keys) == len(parameters) and all(map(TAKEN.fullmatch, keys))
        assert set(one.parameters.get("required", ())) == set(keys)
        made = assistant(None, [FunctionCall(function=one.name, args=dict.fromkeys(keys, "x"))])
        read = ChatReply(made) if names is None else names.read_reply(ChatReply(made))
        (call,) = read.message["tool_calls"] or [None]
        assert call
        assert (call.function, list(call.args)) == (own.name, parameters)


def test_a_request_whose_names_are_taken_goes_as_it_is() -> None:
    assert (
        WireNames.find(ChatRequest([user("Hi")], [tool("send_money", "amount"), tool("read-file")])) is None
    )


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "google"])
def test_a_name_that_no_provider_takes_is_in_no_request_also_where_a_model_made_it_up(vendor: str) -> None:
    spent = FunctionCall(function="files.read", args={"max-results": "3"}, id="call_x1y2z3")
    result: Any = {"role": "tool", "content": [], "tool_call": spent, "tool_call_id": spent.id, "error": None}
    made_up = FunctionCall(function="x<|channel|>y", args={}, id="call_x1y2z4")
    odd: Any = {**result, "tool_call": made_up, "tool_call_id": made_up.id}
    messages = [user("Hi"), assistant(None, [spent, made_up]), result, odd]
    body = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
    with answering(200, json.dumps(body).encode()) as server:
        try:
            model_at(vendor, server.base_url).complete(
                ChatRequest(messages, [tool("files.read", "max-results")])
            )
        except Exception as error:  # noqa: BLE001 - the reply is another wire's
            assert "malformed" in str(error)
        sent = server.last.decode()
    assert "files_read" in sent and "max_results" in sent
    assert "files.read" not in sent and "max-results" not in sent and "<|channel|>" not in sent


@given(
    st.lists(
        st.sampled_from(["demonstration_1", "masked_file", "call_3_0", "", "check"]), min_size=1, max_size=4
    )
)
def test_ids_that_a_defense_made_up_are_nine_letters_and_digits_and_results_answer_them(
    ids: list[str],
) -> None:
    calls = [FunctionCall(function="f", args={"n": n}, id=one or None) for n, one in enumerate(ids)]
    results: list[Any] = [
        {"role": "tool", "content": [], "tool_call": one, "tool_call_id": one.id, "error": None}
        for one in calls
    ]
    wired = build_openai_messages([user("Hi"), assistant(None, calls), *results], "system")
    sent = [call["id"] for call in wired[1]["tool_calls"]]
    assert all(re.fullmatch(r"[A-Za-z0-9]{9}", one) for one in sent)
    assert [message["tool_call_id"] for message in wired[2:]] == sent


@pytest.mark.parametrize("kept", ["functions.pay:0", "call_aB3xYz91kQ", "chatcmpl-tool-0f", "D681PevKs"])
def test_an_id_that_a_server_gave_goes_back_as_it_came(kept: str) -> None:
    turn = assistant(None, [FunctionCall(function="f", args={}, id=kept)])
    assert build_openai_messages([turn], "system")[0]["tool_calls"][0]["id"] == kept


@given(
    st.text(max_size=40), st.lists(st.sampled_from(["pay", "pay_all", "json", "functions.pay"]), unique=True)
)
def test_a_name_is_cleaned_to_one_on_offer_or_not_at_all(name: str, offered: list[str]) -> None:
    cleaned = clean_name(name, offered)
    assert cleaned in (name, "") or cleaned in offered
    if name in offered:
        assert cleaned == name


@pytest.mark.parametrize("name", ["pay_all", "repay", "pay all", "pay;send", "please pay", "Pay"])
def test_another_name_is_no_leak(name: str) -> None:
    assert clean_name(name, ["pay", "send"]) == name
