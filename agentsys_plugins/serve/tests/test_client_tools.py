"""Tools are what their schemas say: arguments that a schema admits reach the tool as they came."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from drawn_schemas import tool_schemas
from front_clients import Client, desk_of, served_desk
from hypothesis import HealthCheck, given, settings
from scripted_for_serving import Scripted, calls, says

from agentsys.contracts import Defense
from agentsys.defense.agentsys import AgentSys
from agentsys.errors import find_missing_packages
from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec
from agentsys.models.pipeline_elements import describe_tool
from agentsys_plugins.serve import mcp_tools
from agentsys_plugins.serve.client_tools import (
    ClientRuntime,
    UnusableTool,
    build_client_functions,
    name_tools,
)
from agentsys_plugins.serve.served_model import json_check
from agentsys_plugins.serve.served_model.json_check import find_misfit
from baselines.none import NoDefense

drawn = settings(
    max_examples=70, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


class OneCall:
    """Calls the tool that it is offered with these arguments, and is done."""

    name = "one call"

    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args

    def complete(self, request: ChatRequest) -> ChatReply:
        if request.role == "privileges":
            return says(json.dumps(dict.fromkeys(("work",), "query")))
        if request.role == "worker":
            return says('{"done": true}')
        if request.messages[-1]["role"] == "tool":
            return says("Done.")
        more = {"intent": {"done": "boolean"}} if request.role == "main" else {}
        return calls((request.tools[0].name, {**self.args, **more}))


@drawn
@given(tool_schemas)
def test_in_process_arguments_reach_the_tool_equal(tool: tuple[Any, Any]) -> None:
    schema, args = tool
    got: list[Any] = []

    def run(name: str, given: dict[str, Any]) -> str:
        got.append((name, given))
        return "ok"

    (function,) = build_client_functions([ToolSpec("mail.send", "Sends.", schema)], run)
    assert ClientRuntime([function]).run_function(None, function.name, args) == ("ok", None)
    assert got == [("mail.send", args)]
    assert describe_tool(function).parameters == {"type": "object", **schema}


@pytest.mark.parametrize("defense", [NoDefense(), AgentSys()], ids=["none", "agentsys"])
@settings(parent=drawn, max_examples=35)
@given(tool=tool_schemas)
def test_over_the_wire_arguments_reach_the_client_equal(defense: Defense, tool: tuple[Any, Any]) -> None:
    schema, args = tool
    with served_desk(OneCall(args), defense) as server:
        body: Any = {"tools": [{"type": "function", "function": {"name": "work", "parameters": schema}}]}
        body["messages"] = [{"role": "user", "content": "Go."}]
        reply = httpx.post(f"{server.openai_base_url}/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    [call] = reply.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == args
    assert len(call["id"]) == 37 and call["id"].startswith("call_")


ECHO = Path(__file__).parents[3] / "tests" / "support" / "mcp_echo_server.py"


@pytest.mark.skipif(bool(find_missing_packages(["mcp"])), reason="the extra mcp is not installed")
@pytest.mark.slow
def test_over_mcp_arguments_reach_the_server_equal(tmp_path: Path) -> None:
    from mcp import ClientSession, StdioServerParameters, stdio_client

    found: list[Any] = []

    @settings(parent=drawn, max_examples=200)
    @given(tool_schemas)
    def draw(tool: tuple[Any, Any]) -> None:
        found.append(tool)

    draw()
    (tmp_path / "tools.json").write_text(json.dumps([schema for schema, _ in found]))

    async def main() -> None:
        server = StdioServerParameters(command=sys.executable, args=[str(ECHO), str(tmp_path / "tools.json")])
        with (tmp_path / "log").open("w") as log:
            async with stdio_client(server, errlog=log) as streams, ClientSession(*streams) as session:
                await session.initialize()
                tools = await mcp_tools(session)
                runtime = ClientRuntime(tools)
                for function, (_, args) in zip(tools, found, strict=True):
                    told = await asyncio.to_thread(runtime.run_function, None, function.name, args)
                    assert (json.loads(told[0]), told[1]) == (args, None)

    asyncio.run(main())
    assert len(found) == 200


@pytest.mark.parametrize(("parameters", "runs"), [(True, True), (None, True), (False, False)])
def test_parameters_that_are_true_take_all_and_false_nothing(parameters: Any, runs: bool) -> None:
    tools = [{"type": "function", "function": {"name": "work", "parameters": parameters}}]
    with served_desk(OneCall({"a": 1}), NoDefense()) as server:
        body: Any = {"tools": tools, "messages": [{"role": "user", "content": "Go."}]}
        reply = httpx.post(f"{server.openai_base_url}/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200
    assert bool(reply.json()["choices"][0]["message"].get("tool_calls")) == runs


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "parameters",
    [
        {"$schema": 5},
        {"properties": {"a": 5}},
        nested(60),
        nested(140),
        nested(400),
        {"properties": {"a": {"type": "strange"}}},
        {"properties": {"a": {"pattern": "("}}, "required": 3},
        {"type": "array"},
        {"type": ["object", "null"]},
        {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {"required": "x"}}},
    ],
    ids=range(10),
)
def test_a_schema_that_is_none_is_the_clients_mistake_in_one_sentence(parameters: Any) -> None:
    with served_desk(Scripted(says("x")), NoDefense()) as server:
        body = {"tools": [{"type": "function", "function": {"name": "work", "parameters": parameters}}]}
        raw = json.dumps({**body, "messages": [{"role": "user", "content": "Go."}]})
        reply = httpx.post(f"{server.openai_base_url}/chat/completions", content=raw, timeout=60)
    assert reply.status_code == 400
    told = reply.json()["error"]["message"]
    assert told and "\n" not in told and len(told) < 600


@pytest.mark.parametrize(
    ("schema", "args", "told"),
    [
        ({"properties": {"a": False}}, {"a": 1}, "does not allow"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"a": 1}, "cannot be applied"),
        ({"properties": {"a": {"$ref": "https://example.org/x"}}}, {"a": 1}, "cannot be applied"),
        ({}, {"a": json.loads("[" * 120 + "]" * 120)}, "nested more than 100"),
        ({"type": "object"}, {"a": float("nan")}, "as JSON"),
        ({"unevaluatedProperties": False, "properties": {"a": {}}}, {"b": 1}, "nevaluated"),
    ],
)
def test_what_a_schema_does_not_admit_is_told_and_the_tool_does_not_run(
    schema: Any, args: dict[str, Any], told: str
) -> None:
    def run(name: str, given: dict[str, Any]) -> str:
        raise AssertionError

    (function,) = build_client_functions([ToolSpec("work", "", schema)], run)
    error = ClientRuntime([function]).run_function(None, "work", args)[1]
    assert error is not None and told in error


def test_names_that_no_provider_takes_are_told_otherwise_and_the_client_is_asked_by_its_own() -> None:
    names = ["mail.send", "mail_send", "mail/send", "a b\0", "用户", "ok-name", "x" * 80, "x" * 81]
    told = name_tools(names)
    assert len(set(told)) == len(names)
    assert all(len(one) <= 64 and one.replace("_", "a").replace("-", "a").isalnum() for one in told)
    assert (told[1], told[5]) == ("mail_send", "ok-name")
    client = Client(desk_of(OneCall({"to": "Rome"}), NoDefense()), {}, [ToolSpec("mail.send", "", {})])
    [call] = client.say("Go.").message["tool_calls"] or []
    assert (call.function, call.args) == ("mail.send", {"to": "Rome"})


def test_a_thousand_names_that_are_all_mapped_alike_stay_apart_in_little_time() -> None:
    names = [chr(0x4E00 + number) for number in range(1024)]
    started = time.thread_time()
    told = name_tools(names)
    assert time.thread_time() - started < 0.5
    assert len(set(told)) == len(names) and max(map(len, told)) <= 64
    assert name_tools(names) == told


def test_two_tools_of_one_name_are_refused_by_name() -> None:
    with pytest.raises(UnusableTool, match="'a'"):
        build_client_functions([ToolSpec("a", "", {}), ToolSpec("a", "", {})], lambda name, args: "")


@pytest.mark.parametrize("value", [2**80, -(2**63) - 1, 1.5e300, "\ud800", "a\0b", "\x9b"])
def test_whatever_a_model_writes_as_an_argument_is_handed_out_or_told_and_no_500(value: Any) -> None:
    with served_desk(OneCall({"a": value}), NoDefense()) as server:
        body: Any = {"tools": [{"type": "function", "function": {"name": "work", "parameters": {}}}]}
        body["messages"] = [{"role": "user", "content": "Go."}]
        reply = httpx.post(f"{server.openai_base_url}/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    [call] = reply.json()["choices"][0]["message"]["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"a"}


def test_that_a_check_was_ended_is_no_verdict_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, values = b'{"properties": {"x": {"items": {"type": "number"}}}}', {"x": [*range(20_000)]}
    with monkeypatch.context() as hurried:
        hurried.setattr(json_check, "MAX_CHECK_S", 1e-3)
        assert "takes more than" in str(find_misfit(schema, values, "kept"))
    monkeypatch.setattr(json_check, "MAX_CHECK_S", 60.0)
    assert find_misfit(schema, values, "kept") is None


def test_simple_checks_are_made_here_and_say_what_the_process_says(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = json.dumps(
        {"type": "object", "properties": {"x": {"type": "integer", "maximum": 3}}, "required": ["x"]}
    )
    tried: list[Any] = [{"x": 1}, {"x": 4}, {"x": "1"}, {}, {"x": 1, "y": [[1]]}, {"x": None}]
    here = [find_misfit(schema.encode(), one, "here") for one in tried]
    monkeypatch.setattr(json_check, "_SMALL", 0)
    assert [find_misfit(schema.encode(), one, "there") for one in tried] == here
    monkeypatch.undo()
    assert [one is None for one in here] == [True, False, False, False, True, False]
    for more in ({"pattern": "x"}, {"$ref": "#"}, {"anyOf": [{}]}, {"items": {"uniqueItems": True}}, True):
        assert not json_check._is_simple(json.dumps(more))
