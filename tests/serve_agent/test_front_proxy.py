"""The other vendors' SDKs through litellm's proxy before a served agent (slow; extra `proxy`)."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from front_clients import served_desk
from google import genai
from google.genai import errors
from interop_page import ANSWER, TOOLS, Clerk
from started_servers import litellm_proxy

from agentsys.contracts import Defense
from agentsys.defense.agentsys import AgentSys
from baselines.none import NoDefense

pytestmark = pytest.mark.slow
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SAID = {"weather": "sunny in Rome", "time": "noon in Rome"}


@pytest.mark.parametrize("defense", [NoDefense(), AgentSys()], ids=["none", "agentsys"])
def test_the_vendors_own_loops_run_both_tools(
    defense: Defense, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"sk-{secrets.token_hex(32)}"
    monkeypatch.setenv("LITELLM_MASTER_KEY", key)
    with (
        served_desk(Clerk(), defense) as server,
        litellm_proxy(server.openai_base_url, tmp_path) as proxy,
    ):
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
    runner = client.beta.messages.tool_runner(
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
    for _ in range(4):
        reply = client.responses.create(model="served", input=items, tools=tools)
        items += [item.model_dump(exclude_none=True) for item in reply.output]
        made = [item for item in reply.output if item.type == "function_call"]
        items += [
            {"type": "function_call_output", "call_id": one.call_id, "output": SAID[one.name]} for one in made
        ]
        if not made:
            break
    return str(reply.output_text)
