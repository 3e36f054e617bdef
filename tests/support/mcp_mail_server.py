"""A small MCP server over stdio: two pages of tools, one that fails, one with data alone."""

from __future__ import annotations

from typing import Any

import anyio
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

TEXT = {"type": "string"}
BILL = "Please pay 98.70 to UK12345678901234567890."


def tool(name: str, described: str, *arguments: str) -> types.Tool:
    schema = {"type": "object", "properties": dict.fromkeys(arguments, TEXT), "required": list(arguments)}
    return types.Tool(name=name, description=described, input_schema=schema)


FIRST = [tool("read_file", "Reads a file.", "file_path"), tool("broken", "Always fails.")]
SECOND = [tool("total", "Gives a sum as data.", "account")]


async def list_tools(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    if params is not None and params.cursor == "second":
        return types.ListToolsResult(tools=SECOND)
    return types.ListToolsResult(tools=FIRST, next_cursor="second")


async def call_tool(
    context: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    if params.name == "broken":
        said: list[types.ContentBlock] = [types.TextContent(type="text", text="the disk is gone")]
        return types.CallToolResult(content=said, is_error=True)
    if params.name == "total":
        return types.CallToolResult(content=[], structured_content={"total": 3})
    named = (params.arguments or {})["file_path"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"{named}: {BILL}")])


async def main() -> None:
    server = Server("mail", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
