"""AgentDojo's own elements talk to the served model, through a stock tool loop."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import pytest
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.llms.anthropic_llm import AnthropicLLM
from agentdojo.agent_pipeline.llms.google_llm import GoogleLLM
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from agentdojo.functions_runtime import FunctionsRuntime, make_function
from scripted_for_serving import Scripted, calls, google_client, openai_client, says

from agentsys.models.chat import text_of
from agentsys.models.serving import Server, serve


def weather(city: str) -> str:
    """Tells the weather.

    :param city: Where.
    """
    if city == "Atlantis":
        raise ValueError("sunk")
    return f"{city}: 22 degrees"


def by_openai(server: Server) -> Any:
    return OpenAILLM(openai_client(server), "gpt-4o")


def by_google(server: Server) -> Any:
    return GoogleLLM("gemini", google_client(server))


def by_anthropic(server: Server) -> Any:
    # AgentDojo 0.1.35 runs every query in an event loop of its own, where a kept connection is dead.
    limits = httpx.Limits(max_keepalive_connections=0)
    client = anthropic.AsyncAnthropic(
        api_key="none", base_url=server.base_url, max_retries=0, http_client=httpx.AsyncClient(limits=limits)
    )
    return AnthropicLLM(client, "claude-3-7-sonnet")


def run(llm: BasePipelineElement) -> list[Any]:
    loop = ToolsExecutionLoop([ToolsExecutor(), llm])
    pipeline = AgentPipeline([SystemMessage("be brief"), InitQuery(), llm, loop])
    runtime = FunctionsRuntime([make_function(weather)])
    return list(pipeline.query("How warm is it?", runtime)[3])


@pytest.mark.parametrize("element", [by_openai, by_anthropic, by_google])
def test_a_stock_tool_loop_runs_to_its_answer(element: Any) -> None:
    model = Scripted(
        calls(("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})),
        calls(("weather", {"city": "Atlantis"})),
        says("22 degrees"),
    )
    with serve(model) as server:
        messages = run(element(server))
        assert server.requests == 3
    assert text_of(messages[-1]) == "22 degrees"
    told = model.asked[2].messages
    assert [message["role"] for message in told] == [
        *("system", "user"),
        *("assistant", "tool", "tool"),
        *("assistant", "tool"),
    ]
    results = [message for message in told if message["role"] == "tool"]
    assert [message["tool_call"].args["city"] for message in results] == ["Rome", "Oslo", "Atlantis"]
    assert text_of(results[0]) == "Rome: 22 degrees"
    assert "sunk" in (results[2]["error"] or text_of(results[2]))
    assert [tool.name for tool in model.asked[0].tools] == ["weather"]
    assert model.asked[0].tools[0].parameters["properties"]["city"]["type"] == "string"


def test_an_error_goes_to_openai_as_text_alone() -> None:
    model = Scripted(calls(("weather", {"city": "Atlantis"})), says("gone"))
    with serve(model) as server:
        run(by_openai(server))
    result = model.asked[1].messages[-1]
    assert result["error"] is None
    assert "sunk" in text_of(result)
