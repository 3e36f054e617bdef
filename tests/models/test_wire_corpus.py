"""Replies of real servers, one file each in tests/corpus/wires, are read as their file says."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from agentdojo.task_suite.load_suites import get_suite
from posted_server import JSON, serve_posts
from providers_under_test import model_at
from wire_corpus import FILES, load, name_of

from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    ToolSpec,
    text_of,
    user,
)
from agentsys.models.endings import Ending
from agentsys.models.pipeline_elements import tool_specs
from agentsys.models.pricing import Price
from agentsys.models.providers.litellm import LiteLLMModel
from agentsys.models.providers.wire_parts import read_thoughts_text
from agentsys.models.reply_checks import count_oddities

PRICE = Price.model_validate({"prompt": 1.0, "completion": 2.0, "as_of": "2026-01-01"})
FIELDS = {
    "server",
    "version",
    "report",
    "wire",
    "status",
    "headers",
    "body",
    "raw",
    "tools",
    "model",
    "request",
}
EXPECTED = {
    *("ending", "reason", "calls", "text", "thoughts", "odd", "usage", "cost", "error", "message", "notes"),
    "mended",
}
KEY = "CORPUS_KEY"
USUAL_TOOLS = ("send_money", "get_balance", "read_file")
VENDORS = {"chat": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "google"}


@cache
def banking_tools() -> dict[str, ToolSpec]:
    return {tool.name: tool for tool in tool_specs(get_suite("v1.2.2", "banking").tools)}


def request_of(case: dict[str, Any]) -> ChatRequest:
    listed = case.get("tools", USUAL_TOOLS)
    tools = [banking_tools()[tool] if isinstance(tool, str) else ToolSpec(**tool) for tool in listed]
    asked = dict(case.get("request", {}))
    return ChatRequest([user(asked.pop("text", "Pay the bill."))], tools, **asked)


def answer_of(case: dict[str, Any]) -> tuple[int, bytes]:
    return case.get("status", 200), case["raw"].encode() if "raw" in case else json.dumps(
        case["body"]
    ).encode()


def model_for(case: dict[str, Any], base_url: str) -> ChatModel:
    more = {"price": PRICE, **case.get("model", {})}
    more["price"] = Price.model_validate(more["price"])
    if case["wire"] == "litellm":
        if find_spec("litellm") is None:
            pytest.skip("litellm is not installed")
        return LiteLLMModel("m", "openai/m-1", KEY, base_url=f"{base_url}/v1", **more)
    if case["wire"] == "responses":
        more["api"] = "responses"
    return model_at(VENDORS[case["wire"]], base_url, **more)


def read(case: dict[str, Any]) -> tuple[ChatRequest, ChatReply | ModelError]:
    request = request_of(case)
    with serve_posts(lambda posted: answer_of(case), {**JSON, **case.get("headers", {})}) as base_url:
        try:
            with mock.patch.dict(os.environ, {KEY: "sk-of-the-corpus"}):
                return request, model_for(case, base_url).complete(request)
        except ModelError as error:
            return request, error


def told(request: ChatRequest, reply: ChatReply | ModelError) -> dict[str, Any]:
    """What was read, in the words of `expect`."""
    if isinstance(reply, ModelError):
        return {
            "error": reply.kind.value,
            "message": str(reply),
            "usage": tidy(reply),
            "cost": reply.cost_usd,
        }
    return {
        "error": None,
        "ending": reply.ending and reply.ending.value,
        "reason": reply.reason,
        "calls": [[call.function, dict(call.args)] for call in reply.message["tool_calls"] or ()],
        "text": text_of(reply.message),
        "thoughts": read_thoughts_text(reply.message),
        "odd": count_oddities(request, reply),
        "usage": tidy(reply),
        "cost": reply.cost_usd,
        "notes": "; ".join(reply.notes),
    }


def marked(path: Path) -> Any:
    """The file as a parameter; slow where it takes importing litellm."""
    slow = [pytest.mark.slow] if load(path)["wire"] == "litellm" else []
    return pytest.param(path, id=name_of(path), marks=slow)


def tidy(reply: ChatReply | ModelError) -> dict[str, int]:
    return {name: count for name, count in asdict(reply.usage).items() if count}


def is_malformed_without_tools(case: dict[str, Any]) -> bool:
    """Whether its arguments can be read only by the schema of the tool on offer."""
    reply = read({**case, "tools": []})[1]
    return isinstance(reply, ModelError) and reply.kind is ErrorKind.MALFORMED_REPLY


@pytest.mark.parametrize("path", map(marked, FILES))
def test_a_reply_is_read_as_its_file_says(path: Path) -> None:
    case = load(path)
    expect = {"error": None, "calls": [], "odd": {}, **case["expect"]}
    if expect.pop("mended", False):
        assert is_malformed_without_tools(case)
    got = told(*read(case))
    if expect["error"] is not None:
        expect = {key: value for key, value in expect.items() if key not in ("calls", "odd")}
    for key in ("message", "notes"):
        if key in expect:
            assert expect.pop(key) in got.get(key, "")
    if "cost" in expect:
        assert got.get("cost") == pytest.approx(expect.pop("cost"))
    assert {key: got.get(key) for key in expect} == expect


def test_the_corpus_holds_many_replies_of_many_servers() -> None:
    assert len(FILES) >= 150 and len({path.parent for path in FILES}) >= 14


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_says_what_it_is(path: Path) -> None:
    case = load(path)
    assert case.keys() - FIELDS == {"expect"} and case["expect"].keys() <= EXPECTED
    assert case["server"] and case["report"] and "\n" not in case["report"]
    assert ("body" in case) != ("raw" in case)
    assert case["wire"] in {*VENDORS, "litellm"}
    assert case["expect"].get("error") or Ending(case["expect"]["ending"])
