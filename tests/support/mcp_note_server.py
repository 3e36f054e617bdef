"""An MCP server over stdio whose one tool says its words in the way that its argument names."""

from __future__ import annotations

import sys
from typing import Any

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

WORDS = sys.argv[1]
NOTE = types.Tool(
    name="read_note",
    description="Reads a note.",
    input_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
)


async def list_tools(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[NOTE])


async def call_tool(
    context: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    match (params.arguments or {})["name"]:
        case "mcp_error":
            raise MCPError(-32000, WORDS, {WORDS: WORDS})
        case "raised":
            raise type(WORDS, (Exception,), {})(WORDS)
        case "data":
            return types.CallToolResult(content=[], structured_content={"id": WORDS, WORDS: WORDS})
        case way:
            error = {"error": f"{WORDS}: x", "python": f"ValueError: {WORDS}", "bare": WORDS}.get(way)
            said = f"id: {WORDS}\ntext: {WORDS}" if error is None else error
            text = types.TextContent(type="text", text=said)
            return types.CallToolResult(content=[text], is_error=error is not None)


async def main() -> None:
    server = Server(WORDS, on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
