"""OpenAI's Agents SDK and LangChain, which nobody here wrote, with two tools that are called together (slow).

They run in an environment of their own, whose Python `AGENTSYS_FRAMEWORKS` names: docs/interop.md says how to
make it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from front_clients import desk_of
from interop_page import ANSWER, TOOLS, Clerk, at, block

from agentsys.contracts import Defense
from agentsys.defense.agentsys import AgentSys
from agentsys.models.serving import Server, serve
from baselines.none import NoDefense

pytestmark = pytest.mark.slow

AGENTS = """
import asyncio


async def more():
    # A client belongs to the event loop that it was first used in.
    set_default_openai_client(AsyncOpenAI(base_url="http://127.0.0.1:8321/v1", api_key="none"))
    first = await Runner.run(agent, "How is Rome?")
    print(sum(item.type == "function_call" for item in first.raw_responses[0].output))
    asked = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    print((await Runner.run(agent, asked)).final_output)
    named = await Runner.run(agent, "How is Rome?", auto_previous_response_id=True)
    print(named.final_output)
    after = await Runner.run(agent, "And now?", previous_response_id=named.last_response_id)
    print(after.final_output)
    streamed = Runner.run_streamed(agent, "How is Rome?")
    async for _ in streamed.stream_events():
        pass
    print(streamed.final_output)


asyncio.run(more())
"""
LANGCHAIN = """
tools = {"weather": weather, "time": time}
for responses in (False, True):
    about = {"base_url": model.openai_api_base, "api_key": "none", "use_responses_api": responses}
    chat = ChatOpenAI(model="any", **about)
    bound, said = chat.bind_tools(list(tools.values())), [("user", "How is Rome?")]
    print(len(bound.invoke(said).tool_calls))
    while not said[1:] or whole.tool_calls:
        parts = list(bound.stream(said))
        whole = parts[0]
        for part in parts[1:]:
            whole += part
        said.append(whole)
        for call in whole.tool_calls:
            said.append(ToolMessage(tools[call["name"]](**call["args"]), tool_call_id=call["id"]))
    print(whole.text)
    print(create_agent(chat, list(tools.values())).invoke(asked)["messages"][-1].text)
"""


def frameworks() -> str:
    """The Python that has them; skips where none has."""
    given = os.environ.get("AGENTSYS_FRAMEWORKS")
    if not given:
        pytest.skip("AGENTSYS_FRAMEWORKS names no Python with the frameworks: see docs/interop.md")
    return given


@contextmanager
def served(defense: Defense) -> Iterator[Server]:
    desk = desk_of(Clerk(), defense)
    with serve(desk) as running:
        yield running
    desk.stop()


def printed(code: str, folder: Path) -> list[str]:
    """What a program prints, run by the frameworks' own Python, which does not see this project."""
    python = frameworks()
    script = folder / "program.py"
    script.write_text(code)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, str(script)], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


CASES = [(NoDefense(), "2"), (AgentSys(), "1")]
"""Defenses, and how many of the two calls of one message go out together."""


@pytest.mark.parametrize(("defense", "together"), CASES, ids=["none", "agentsys"])
def test_openais_agents_sdk_runs_streams_and_goes_on(defense: Defense, together: str, tmp_path: Path) -> None:
    frameworks()
    with served(defense) as server:
        code = TOOLS + at(server, block("from agents import") + AGENTS)
        assert printed(code, tmp_path) == [ANSWER, together, *[ANSWER] * 4]


@pytest.mark.parametrize(("defense", "together"), CASES, ids=["none", "agentsys"])
def test_langchain_invokes_and_streams_on_both_of_openais_wires(
    defense: Defense, together: str, tmp_path: Path
) -> None:
    frameworks()
    imports = "from langchain_core.messages import ToolMessage\n"
    with served(defense) as server:
        code = imports + TOOLS + at(server, block("from langchain.agents")) + LANGCHAIN
        assert printed(code, tmp_path) == [ANSWER, ANSWER, *[together, ANSWER, ANSWER] * 2]
