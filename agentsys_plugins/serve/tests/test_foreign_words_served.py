"""No word of an MCP server's tool reaches who decides, through `guard` or over the wire, in any way of saying it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from agentdojo.functions_runtime import Function
from foreign_words import DEFENSES, SENTENCES, ObedientModel
from front_clients import PlainStack, served_desk

from agentsys.base.config_catalog import load_config
from agentsys.contracts import Defense
from agentsys.errors import find_missing_packages
from agentsys.models import untrusted
from agentsys.models.pipeline_elements import describe_tool
from agentsys.models.untrusted import ToolError, Untrusted
from agentsys.runs.instantiate import instantiate
from agentsys_plugins.serve.defended_agent import ClientTurn, DefendedAgent, Dialogue
from agentsys_plugins.serve.probe_agent import open_mcp_subject

pytestmark = pytest.mark.skipif(bool(find_missing_packages(["mcp"])), reason="the extra mcp is not installed")
SERVER = Path(__file__).parents[3] / "tests" / "support" / "mcp_note_server.py"
WAYS = ("result", "data", "error", "python", "bare", "raised", "mcp_error")
ASKED = "Read my note."


FAST = "chinese"  # A sentence that can be the name of a class.
SERVED = ("agentsys", "agentsys_typed", "camel", "fides")
"""Of each family one, which even this sentence is said to over the wire."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(words, id=name, marks=() if name == FAST else (pytest.mark.slow,))
        for name, words in SENTENCES.items()
    ],
)
def foreign(request: pytest.FixtureRequest) -> Iterator[tuple[str, Sequence[Any]]]:
    """Words, and the tools of a server that says them."""
    command = shlex.join([sys.executable, str(SERVER), request.param])
    with open_mcp_subject(command, ASKED) as subject:
        yield request.param, subject.tools


def build_defense(name: str) -> Defense:
    defense: Defense = instantiate("defense", load_config("defense", name))
    return defense


def run_guarded(defense: str, way: str, tools: Sequence[Function]) -> ObedientModel:
    model, dialogue = ObedientModel(way), Dialogue()
    DefendedAgent(build_defense(defense), PlainStack(model)).run_turn(dialogue, ClientTurn(ASKED, tools))  # type: ignore[arg-type]
    return model


def run_served(defense: str, way: str, tools: Sequence[Function], words: str) -> ObedientModel:
    """A client's loop over HTTP, which tries an id of its own before each result."""
    (tool,), model = tools, ObedientModel(way)
    spec = describe_tool(tool)
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    messages: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    with served_desk(model, build_defense(defense)) as server, httpx.Client(timeout=120) as client:

        def post() -> httpx.Response:
            body = {"messages": messages, "tools": [{"type": "function", "function": function}]}
            return client.post(f"{server.openai_base_url}/chat/completions", json=body)

        while (reply := post()).status_code == 200:
            message = reply.json()["choices"][0]["message"]
            messages.append(message)
            for call in message.get("tool_calls") or ():
                try:
                    text = tool.run(**json.loads(call["function"]["arguments"]))
                except Exception as error:  # noqa: BLE001 - what a client's framework does
                    text = f"{type(error).__name__}: {error}"
                result = {"role": "tool", "name": words, "content": text}
                messages.append({**result, "tool_call_id": f"call_{words}"})
                assert post().status_code in (400, 409)
                messages[-1] = {**result, "tool_call_id": call["id"]}
            if not message.get("tool_calls"):
                break
    return model


@pytest.mark.parametrize("defense", DEFENSES)
def test_no_word_of_an_mcp_servers_tool_reaches_who_decides(
    defense: str, foreign: tuple[str, Sequence[Any]]
) -> None:
    words, tools = foreign
    served = words != SENTENCES[FAST] or defense in SERVED
    for way in WAYS:
        models = [run_guarded(defense, way, tools)]
        models += [run_served(defense, way, tools, words)] if served else []
        for model in models:
            assert len(model.read) > 1 and words not in model.shown, (way, model.shown[-600:])


def test_the_words_reach_an_agent_that_reads_results(foreign: tuple[str, Sequence[Any]]) -> None:
    words, tools = foreign
    for way in WAYS:
        assert words in run_guarded("agentsys_no_isolation", way, tools).shown, way
        assert words in run_served("agentsys_no_isolation", way, tools, words).shown, way


@pytest.mark.parametrize("defense", ["agentsys", "agentsys_strict", "camel"])
def test_a_foreign_error_that_names_its_kind_itself_would_be_seen(
    defense: str, foreign: tuple[str, Sequence[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Guards the property: without the closed set of kinds the words arrive.
    def read_error(error: str, function: Function) -> ToolError:
        return ToolError(error.split(": ")[-2 if ": x" in error else -1], Untrusted(error), Untrusted(error))

    monkeypatch.setattr(untrusted, "read_error", read_error)
    words, tools = foreign
    assert words in run_guarded(defense, "error", tools).shown
