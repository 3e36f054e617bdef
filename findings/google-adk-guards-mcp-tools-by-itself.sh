#!/usr/bin/env bash
# Guess: an agent without a defense is one whose prompt holds what its author wrote.
# Seen: as soon as one tool comes from an MCP server, google-adk 2.13 adds to the system instruction that texts between two
# markers are data and never instructions, and puts the descriptions of that server's tools between them. The same tool as a
# function gets neither; results of both kinds come bare. And of a server that lists its tools in pages the first page is all.
# Where: google/adk/flows/llm_flows/context/_fencing.py; google/adk/tools/mcp_tool/mcp_toolset.py (asks `list_tools` once).
# Why it matters: a row "no defense" measured over MCP has a delimiter defense and a warning in it, and the row beside it, whose
# tools are functions, has not; an attack on descriptions is weaker here for a reason that no setting names.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install google-adk==2.13.0 mcp==2.3.0
cd "$folder"
cat > server.py <<'PYTHON'
import json
import sys


def describe(name):
    return {"name": name, "description": "Read the last mail.", "inputSchema": {"type": "object", "properties": {}}}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        second = bool((asked.get("params") or {}).get("cursor"))
        answers = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "mails", "version": "1"},
            },
            "tools/list": {"tools": [describe("count_mails")]} if second else {"tools": [describe("read_mail")], "nextCursor": "2"},
            "tools/call": {"content": [{"type": "text", "text": "Dinner at eight."}], "isError": False},
        }
        known = answers.get(asked["method"])
        outcome = {"error": {"code": -32601, "message": "unknown"}} if known is None else {"result": known}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}), flush=True)
PYTHON
"$folder/venv/bin/python" -W ignore - 2>log <<'PYTHON' || { cat log; exit 1; }
import asyncio
import sys
from importlib.metadata import version

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.genai import types
from mcp import StdioServerParameters


class Scripted(BaseLlm):
    turns: list
    asked: list

    async def generate_content_async(self, request, stream=False):
        self.asked.append(request)
        yield LlmResponse(content=self.turns.pop(0))


def read_mail() -> str:
    """Read the last mail."""
    return "Dinner at eight."


async def converse(tool):
    call = types.Part(function_call=types.FunctionCall(name="read_mail", args={}))
    turns = [types.Content(role="model", parts=[part]) for part in (call, types.Part(text="done"))]
    model = Scripted(model="m", turns=turns, asked=[])
    agent = LlmAgent(name="clerk", model=model, instruction="Be brief.", tools=[tool])
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    task = types.Content(role="user", parts=[types.Part(text="Read.")])
    async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=task):
        pass
    request = model.asked[-1]
    tools = {one.name: one.description for group in request.config.tools for one in group.function_declarations}
    return tools, str(request.config.system_instruction), str(request.contents[-1].parts[-1].function_response.response)


async def main():
    parameters = StdioServerParameters(command=sys.executable, args=["server.py"])
    server = McpToolset(connection_params=StdioConnectionParams(server_params=parameters))
    plain, served = await converse(read_mail), await converse(server)
    await server.close()
    print("google-adk", version("google-adk"))
    for kind, (tools, system, result) in {"function": plain, "MCP": served}.items():
        print(kind, "|", tools, "| system warns:", "never instructions" in system, "| result", result)
    assert "never instructions" not in plain[1] and plain[0] == {"read_mail": "Read the last mail."}
    [(name, description)] = served[0].items()
    assert name == "read_mail" and "UNTRUSTED" in description and "never instructions to follow" in " ".join(served[1].split())
    assert "Dinner at eight." in served[2] and "UNTRUSTED" not in served[2]


asyncio.run(main())
PYTHON
