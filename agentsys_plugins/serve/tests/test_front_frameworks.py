"""Frameworks that nobody here wrote, with two tools that are called together, and with schemas of answers (slow).

They run in an environment of their own, whose Python `AGENTSYS_FRAMEWORKS` names: docs/interop.md says how to
make it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from command_output import run_program
from front_clients import served_desk
from google import genai
from google.genai import errors
from interop_page import ANSWER, TOOLS, Clerk, at, block
from started_servers import litellm_proxy

from agentsys.contracts import Defense
from agentsys.defense.agentsys import AgentSys
from agentsys_plugins.serve.served_model import Server
from baselines.none import NoDefense

pytestmark = pytest.mark.slow

AGENTS = """
import asyncio

from pydantic import BaseModel


class Weather(BaseModel):
    told: str


async def more():
    # A client belongs to the event loop that it was first used in.
    set_default_openai_client(AsyncOpenAI(base_url="http://127.0.0.1:8321/v1", api_key="none"))
    first = await Runner.run(agent, "How is Rome?")
    asked = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    print((await Runner.run(agent, asked)).final_output)
    streamed = Runner.run_streamed(agent, "How is Rome?")
    async for _ in streamed.stream_events():
        pass
    print(streamed.final_output)
    other = Agent(name="other", instructions="You answer.", model="any")
    sorts = Agent(name="sorts", instructions="HAND OVER.", handoffs=[other], model="any")
    try:
        print(await Runner.run(sorts, "HAND OVER to other."))
    except Exception as error:
        print(getattr(error, "status_code", error))


asyncio.run(more())
"""
LANGCHAIN = """
from pydantic import BaseModel


class Weather(BaseModel):
    '''What the weather is.'''

    told: str


from langchain.agents.structured_output import ToolStrategy

tools = {"weather": weather, "time": time}
bound, said = model.bind_tools(list(tools.values())), [("user", "How is Rome?")]
while not said[1:] or whole.tool_calls:
    parts = list(bound.stream(said))
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    said.append(whole)
    for call in whole.tool_calls:
        said.append(ToolMessage(tools[call["name"]](**call["args"]), tool_call_id=call["id"]))
print(whole.text)
typed = create_agent(model, list(tools.values()), response_format=ToolStrategy(Weather))
print(typed.invoke(asked)["structured_response"].told)
print(model.with_structured_output(Weather, method="function_calling").invoke("SAY IT: Rome is sunny.").told)
history = [("user", "Hi."), ("assistant", "I am the clerk."), ("user", "How is Rome?")]
print(create_agent(model, list(tools.values())).invoke({"messages": history})["messages"][-1].text)
"""
PYDANTIC_AI = """
import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(BaseModel):
    told: str


model = OpenAIChatModel("any", provider=OpenAIProvider(base_url="http://127.0.0.1:8321/v1", api_key="none"))
plain = Agent(model, tools=[weather, time])
first = plain.run_sync("How is Rome?")
print(first.output)
print(plain.run_sync("And now?", message_history=first.all_messages()).output)
typed = Agent(model, tools=[weather, time], output_type=Weather)
first = typed.run_sync("How is Rome?")
print(first.output.told)
print(typed.run_sync("And now?", message_history=first.all_messages()).output.told)


async def streamed():
    async with plain.run_stream("How is Rome?") as run:
        print(await run.get_output())


asyncio.run(streamed())
"""
SMOLAGENTS = """
from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def weather(city: str) -> str:
    '''The weather of a city.

    Args:
        city: Where.
    '''
    return f"sunny in {city}"


@tool
def time(city: str) -> str:
    '''The time in a city.

    Args:
        city: Where.
    '''
    return f"noon in {city}"


model = OpenAIModel(model_id="any", api_base="http://127.0.0.1:8321/v1", api_key="none")
agent = ToolCallingAgent(tools=[weather, time], model=model, verbosity_level=0)
print(agent.run("How is Rome?"))
"""


AGNO = """
from agno.agent import Agent
from agno.models.openai import OpenAIChat

model = OpenAIChat(id="any", base_url="http://127.0.0.1:8321/v1", api_key="none")
print(Agent(model=model, tools=[weather, time], telemetry=False).run("How is Rome?").content)
"""
AUTOGEN = """
import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def main():
    about = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown"}
    about["structured_output"] = False
    model = OpenAIChatCompletionClient(
        model="any", base_url="http://127.0.0.1:8321/v1", api_key="none", model_info=about
    )
    agent = AssistantAgent("clerk", model, tools=[weather, time])
    for words in ("How is Rome?", "And now?"):
        print((await agent.run(task=words)).messages[-1].content)
    patient = AssistantAgent("patient", model, tools=[weather, time], max_tool_iterations=5)
    print((await patient.run(task="How is Rome?")).messages[-1].content)


asyncio.run(main())
"""
ADK = """
import asyncio

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main():
    model = LiteLlm(model="openai/any", api_base="http://127.0.0.1:8321/v1", api_key="none")
    runner = InMemoryRunner(Agent(name="clerk", model=model, tools=[weather, time]), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    for words in ("How is Rome?", "And now?"):
        asked = types.Content(role="user", parts=[types.Part(text=words)])
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=asked):
            if event.is_final_response():
                print(event.content.parts[0].text)


asyncio.run(main())
"""
LANGGRAPH = """
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

model = ChatOpenAI(model="any", base_url="http://127.0.0.1:8321/v1", api_key="none").bind_tools([weather, time])
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([weather, time]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
print(graph.compile().invoke({"messages": [HumanMessage("How is Rome?")]})["messages"][-1].text)
"""


def frameworks(variable: str = "AGENTSYS_FRAMEWORKS") -> str:
    """The Python that has them; skips where none has."""
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no Python with the frameworks: see docs/interop.md")
    return given


def printed(code: str, folder: Path, variable: str = "AGENTSYS_FRAMEWORKS") -> list[str]:
    """What a program prints, run by the frameworks' own Python, which does not see this project."""
    python = frameworks(variable)
    script = folder / "program.py"
    script.write_text(code)
    done = run_program([python, script], folder, 600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(params=[NoDefense, AgentSys])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    frameworks()
    with served_desk(Clerk(), request.param()) as running:
        yield running


def test_openais_agents_sdk_runs_streams_goes_on_and_is_told_that_hand_overs_are_not_served(
    server: Server, tmp_path: Path
) -> None:
    code = TOOLS + at(server, block("from agents import") + AGENTS)
    assert printed(code, tmp_path) == [*[ANSWER] * 3, "409"]


def test_langchain_invokes_streams_and_gets_its_response_format(server: Server, tmp_path: Path) -> None:
    imports = "from langchain_core.messages import ToolMessage\n"
    code = imports + TOOLS + at(server, block("from langchain.agents")) + LANGCHAIN
    assert printed(code, tmp_path) == [*[ANSWER] * 4, "Rome is sunny.", ANSWER]


def test_pydantic_ai_runs_streams_and_gets_its_output_type(server: Server, tmp_path: Path) -> None:
    assert printed(TOOLS + at(server, PYDANTIC_AI), tmp_path) == [ANSWER] * 5


def test_smolagents_tool_calling_agent_gets_its_final_answer(server: Server, tmp_path: Path) -> None:
    # It joins the results of calls that went out together, and gives all of them for each.
    said = " ".join(printed(at(server, SMOLAGENTS), tmp_path))
    assert "sunny in Rome" in said and "noon in Rome" in said


def test_agno_gets_both_results_whatever_it_does_to_ids(server: Server, tmp_path: Path) -> None:
    assert printed(TOOLS + at(server, AGNO), tmp_path)[-1:] == [ANSWER]


def test_langgraph_runs_both_tools(server: Server, tmp_path: Path) -> None:
    assert printed(TOOLS + at(server, LANGGRAPH), tmp_path) == [ANSWER]


def test_autogens_default_agent_goes_on_after_a_result_that_it_showed_to_its_user(
    server: Server, tmp_path: Path
) -> None:
    first, *_, last = printed(TOOLS + at(server, AUTOGEN), tmp_path)
    assert first == "sunny in Rome"
    assert last == ANSWER


def test_googles_adk_runs_both_tools_and_goes_on(tmp_path: Path) -> None:
    frameworks("AGENTSYS_ADK")
    for defense in (NoDefense(), AgentSys()):
        with served_desk(Clerk(), defense) as server:
            assert printed(TOOLS + at(server, ADK), tmp_path, "AGENTSYS_ADK") == [ANSWER] * 2


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SAID = {"weather": "sunny in Rome", "time": "noon in Rome"}


@pytest.mark.parametrize("defense", [NoDefense(), AgentSys()], ids=["none", "agentsys"])
def test_the_vendors_own_loops_run_both_tools(
    defense: Defense, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"sk-{secrets.token_hex(32)}"
    monkeypatch.setenv("LITELLM_MASTER_KEY", key)
    with served_desk(Clerk(), defense) as server, litellm_proxy(server.openai_base_url, tmp_path) as proxy:
        with pytest.raises(errors.APIError, match="calls in this request are not known here"):
            by_google(proxy, key)  # The proxy gives Gemini's calls ids of its own.
        assert {one.__name__: one(proxy, key) for one in (by_anthropic, by_responses)} == {
            "by_anthropic": ANSWER,
            "by_responses": ANSWER,
        }


def by_anthropic(proxy: str, key: str) -> str:
    names: dict[str, Any] = {}
    exec(TOOLS, names)
    client = anthropic.Anthropic(base_url=proxy, api_key=key, timeout=120)
    # From 2 on its runner leaves the conversation to Anthropic's server, unless it is told not to.
    whole: Any = {"thread": False} if int(anthropic.__version__.partition(".")[0]) >= 2 else {}
    runner = client.beta.messages.tool_runner(
        **whole,
        model="served",
        max_tokens=1024,
        tools=[anthropic.beta_tool(names["weather"]), anthropic.beta_tool(names["time"])],
        messages=[{"role": "user", "content": "How is Rome?"}],
    )
    return str(runner.until_done().content[0].text)  # type: ignore[union-attr]


def by_google(proxy: str, key: str) -> str:
    names: dict[str, Any] = {}
    exec(TOOLS, names)
    client = genai.Client(api_key=key, http_options={"base_url": proxy, "api_version": "v1beta"})  # type: ignore[arg-type]
    tools: Any = {"tools": [names["weather"], names["time"]]}
    return str(client.models.generate_content(model="served", contents="How is Rome?", config=tools).text)


def by_responses(proxy: str, key: str) -> str:
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key=key, timeout=120)
    tools: Any = [{"type": "function", "name": name, "parameters": CITY} for name in SAID]
    items: list[Any] = [{"role": "user", "content": "How is Rome?"}]
    while True:
        reply = client.responses.create(model="served", input=items, tools=tools)
        items += [item.model_dump(exclude_none=True) for item in reply.output]
        made = [item for item in reply.output if item.type == "function_call"]
        items += [
            {"type": "function_call_output", "call_id": one.call_id, "output": SAID[one.name]} for one in made
        ]
        if not made:
            return str(reply.output_text)
