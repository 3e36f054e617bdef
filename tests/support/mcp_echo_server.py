"""An MCP server over stdio whose tools have the schemas of a file, and give back the arguments that they were given."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

SCHEMAS = json.loads(Path(sys.argv[1]).read_text())
TOOLS = [
    types.Tool(name=f"tool.{number}", input_schema={"type": "object", **schema})
    for number, schema in enumerate(SCHEMAS)
]


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(context: Any, params: Any) -> types.CallToolResult:
    said = json.dumps(params.arguments)
    return types.CallToolResult(content=[types.TextContent(type="text", text=said)])


async def main() -> None:
    server = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
