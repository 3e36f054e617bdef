"""Many users under one key, and clients that would stop the server for others."""

from __future__ import annotations

import json
import os
import random
import re
import time
from typing import Any

import httpx
import pytest
from front_clients import Client, desk_of, refused, served_desk, wait_until
from scripted_for_serving import Scripted, calls, says

from agentsys.defense.agentsys import AgentSys
from agentsys.models.chat import ChatReply, ChatRequest, text_of, user
from agentsys_plugins.serve.conversation_router import ConversationLimits
from agentsys_plugins.serve.defended_agent import Dialogue
from agentsys_plugins.serve.served_model.json_check import find_misfit
from baselines.none import NoDefense

USERS = 50
CONVERSATIONS = int(os.environ.get("AGENTSYS_FRONT_CONVERSATIONS", "200"))
"""Of all users together."""
CANARY = re.compile(r"CANARY-(\d+)")


class Secretary:
    """Greets; reads a page when told to; says what was said last. Keeps what each request held."""

    name = "secretary"

    def __init__(self) -> None:
        self.held: list[set[str]] = []

    def complete(self, request: ChatRequest) -> ChatReply:
        self.held.append(set(CANARY.findall(str(request.messages))))
        if request.role == "privileges":
            return says('{"read": "query", "send": "command"}')
        if request.role == "worker":
            return says('{"text": "a value"}')
        last = request.messages[-1]
        if last["role"] == "user" and "read" in text_of(last):
            intent = {"intent": {"text": "string"}} if request.role == "main" else {}
            return calls(("read", {"page": "1", **intent}))
        return says("Hello.")


@pytest.mark.parametrize("defense", [NoDefense(), AgentSys()], ids=["none", "agentsys"])
def test_users_of_one_key_who_say_the_same_never_meet(defense: Any) -> None:
    model, draws = Secretary(), random.Random(7)
    desk = desk_of(model, defense, limits=ConversationLimits(at_once=CONVERSATIONS))
    open_ones: list[tuple[str, Client]] = []
    for number in range(CONVERSATIONS):
        name = str(number % USERS)
        client = Client(desk, {"read": lambda page, name=name: f"CANARY-{name}"}, told=f"CANARY-{name}")
        open_ones += [(name, client)] * 4  # Four steps each, in random order.
    draws.shuffle(open_ones)
    for name, client in open_ones:
        if client.replies and client.replies[-1].message["tool_calls"]:
            client.run_calls()
        else:
            said = ("hi", f"my secret is CANARY-{name}", "read it")[min(len(client.replies), 2)]
            client.messages.append(user(said))
        before = len(model.held)
        client.send()
        for held in model.held[before:]:
            assert held <= {name}
    assert sum(bool(held) for held in model.held) > CONVERSATIONS


def test_after_a_restart_words_go_on_and_calls_that_wait_are_a_409() -> None:
    words = Client(desk_of(Scripted(says("Hello.")), NoDefense()), {})
    words.ask("Hi.")
    waits = Client(desk_of(Scripted(calls(("read", {"page": "1"}))), NoDefense()), {"read": lambda page: "x"})
    waits.say("Read.")
    waits.run_calls()
    words.desk = waits.desk = desk_of(Scripted(says("And hello.")), NoDefense())
    assert words.ask("And?") == "And hello."
    with refused(409, code="unknown_conversation"):
        waits.send()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"page": {"type": "string", "pattern": "^(a|aa)+$"}}},
        {"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False},
        {
            "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}
            | {"40": {"type": "null"}},
            "properties": {"page": {"$ref": "#/$defs/0"}},
        },
    ],
)
def test_a_schema_that_never_comes_to_an_end_is_ended(schema: dict[str, Any]) -> None:
    find_misfit(b"{}", {})  # The process that checks is there.
    evil, started = "a" * 40 + "!", time.perf_counter()
    wrong = find_misfit(json.dumps({"type": "object", **schema}).encode(), {"page": evil, evil: 1})
    assert wrong is not None and "takes more than" in wrong
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_patterns_and_other_keywords_still_check(keyword: str) -> None:
    by: dict[str, Any] = {
        "pattern": {"properties": {"page": {"type": "string", "pattern": "^p[0-9]$"}}},
        "patternProperties": {"patternProperties": {"^p": {"maxLength": 2}}, "additionalProperties": False},
    }
    tool = json.dumps({"type": "object", **by[keyword]}).encode()
    assert find_misfit(tool, {"page": "p1"}) is None
    assert find_misfit(tool, {"page": "p12"}) is not None
    if keyword == "patternProperties":
        assert find_misfit(tool, {"line": "1"}) is not None


def test_a_turn_whose_client_leaves_before_the_first_reply_ends() -> None:
    class Slow(Scripted):
        def complete(self, request: ChatRequest) -> ChatReply:
            time.sleep(0.5)
            return super().complete(request)

    kept: list[Dialogue] = []
    with served_desk(Slow(calls(("read", {"page": "1"}))), NoDefense(), kept=kept) as server:
        body = {"messages": [{"role": "user", "content": "Read."}], **evil_tools()}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.openai_base_url}/chat/completions", json=body, timeout=0.2)
        wait_until(lambda: bool(kept), "the turn goes on")
    assert "its client left" in str(kept[0].error)


def evil_tools(**page: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"page": {"type": "string", **page}}}
    return {"tools": [{"type": "function", "function": {"name": "read", "parameters": parameters}}]}
