#!/usr/bin/env bash
# Guess: what an MCP tool answers is what the model reads, whichever agent framework calls it.
# Seen: a result has two halves, `content` and `structuredContent`. Where they differ, pydantic-ai's model reads the structured
# half alone, that of openai-agents and langchain-mcp-adapters the content alone, and google-adk's both.
# Where: pydantic_ai/mcp.py (structured content is preferred where all content is text), agents/mcp/util.py
# (`use_structured_content` is off), google/adk/tools/mcp_tool (the whole result is dumped). The protocol says that both SHOULD
# hold the same, so a server that lets them differ is a valid one.
# Why it matters: a guard in front of a server reads one half and the agent behind it the other, and one server is another
# attack in each framework.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in agents langchain; do python3 -m venv "$folder/$name"; done
"$folder/agents/bin/python" -m pip -q --disable-pip-version-check install \
    'pydantic-ai-slim[mcp]==2.66.0' openai-agents==0.24.0 google-adk==2.13.0 mcp==2.3.0
"$folder/langchain/bin/python" -m pip -q --disable-pip-version-check install langchain-mcp-adapters==0.3.2 mcp==1.30.0
cd "$folder"
cat > server.py <<'PYTHON'
import json
import sys

content, structured = [{"type": "text", "text": "first half"}], {"text": "second half"}
answers = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "mails", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "read_mail", "description": "Read.", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": content, "structuredContent": structured, "isError": False},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        known = answers.get(asked["method"])
        outcome = {"error": {"code": -32601, "message": "unknown"}} if known is None else {"result": known}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}), flush=True)
PYTHON
cat > halves.py <<'PYTHON'
def find_halves(shown):
    return [half for half in ("first half", "second half") if half in str(shown)]
PYTHON
OPENAI_AGENTS_DISABLE_TRACING=1 "$folder/agents/bin/python" -W ignore - <<'PYTHON' 2>log || { cat log; exit 1; }
import asyncio
import sys
from importlib.metadata import version
from types import SimpleNamespace

from agents.mcp import MCPServerStdio
from agents.mcp.util import MCPUtil
from agents.tool_context import ToolContext
from fastmcp.client.transports import StdioTransport
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from halves import find_halves
from mcp import StdioServerParameters
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

command, read = [sys.executable, "server.py"], {}


async def ask_pydantic_ai():
    seen = []

    def answer(messages, _):
        seen.append(messages[-1].parts[-1])
        return ModelResponse(parts=[TextPart("done") if len(seen) > 1 else ToolCallPart("read_mail", {})])

    await Agent(FunctionModel(answer), toolsets=[MCPToolset(StdioTransport(command[0], command[1:]))]).run("Read.")
    return seen[-1].model_response_str()


async def ask_openai_agents():
    async with MCPServerStdio(params={"command": command[0], "args": command[1:]}) as server:
        [tool] = await server.list_tools()
        return await MCPUtil.invoke_mcp_tool(server, tool, SimpleNamespace(context=None), "{}")


async def ask_google_adk():
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    tools = McpToolset(connection_params=StdioConnectionParams(server_params=parameters))
    [tool] = await tools.get_tools()
    shown = await tool._run_async_impl(args={}, tool_context=None, credential=None)
    await tools.close()
    return shown


async def main():
    for name, ask in (("pydantic-ai-slim", ask_pydantic_ai), ("openai-agents", ask_openai_agents), ("google-adk", ask_google_adk)):
        read[name] = find_halves(await ask())
        print(name, version(name), "|", read[name])


asyncio.run(main())
assert read == {
    "pydantic-ai-slim": ["second half"],
    "openai-agents": ["first half"],
    "google-adk": ["first half", "second half"],
}
PYTHON
"$folder/langchain/bin/python" -W ignore - <<'PYTHON'
import asyncio
import sys
from importlib.metadata import version

from halves import find_halves
from langchain_mcp_adapters.client import MultiServerMCPClient


async def main():
    server = {"command": sys.executable, "args": ["server.py"], "transport": "stdio"}
    [tool] = await MultiServerMCPClient({"mails": server}).get_tools()
    message = await tool.ainvoke({"type": "tool_call", "id": "1", "name": "read_mail", "args": {}})
    print("langchain-mcp-adapters", version("langchain-mcp-adapters"), "|", find_halves(message.content))
    assert find_halves(message.content) == ["first half"]


asyncio.run(main())
PYTHON
