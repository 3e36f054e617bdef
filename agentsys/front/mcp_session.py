"""`mcp_tools`: the tools of an MCP server, through a client's session, as tools that `guard` takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentdojo.functions_runtime import Function

from agentsys.errors import ConfigError
from agentsys.extras import find_missing_packages, not_installed_error
from agentsys.front.client_tools import ToolFailed, UnusableTool, build_client_functions
from agentsys.models.chat import ToolSpec
from agentsys.storable import to_json_bytes

if TYPE_CHECKING:
    from mcp import ClientSession

MCP_EXTRA = "mcp"


async def mcp_tools(session: ClientSession) -> list[Function]:
    """The tools that a session's server offers now, to be given to `guard`.

    The server runs them; arguments are checked by its own schemas first. Calls go through the event loop that
    this was awaited in, so a request has to be worked on in another
    thread: `asyncio.to_thread(agent.ask, ...)`.

    Args:
        session: An initialized `mcp.ClientSession`.

    Raises:
        Unavailable: If the package `mcp` is not installed.
        ConfigError: If a tool cannot be offered to an agent.
    """
    if absent := find_missing_packages(["mcp"]):
        raise not_installed_error("mcp_tools", absent, MCP_EXTRA)
    loop = asyncio.get_running_loop()

    def run(tool: str, args: dict[str, Any]) -> str:
        if _get_running_loop() is loop:
            raise ConfigError(
                "Tools of an MCP session cannot be waited for in its own event loop; write"
                " await asyncio.to_thread(agent.ask, request)."
            )
        return _result_text(asyncio.run_coroutine_threadsafe(session.call_tool(tool, args), loop).result())

    try:
        return build_client_functions(await _list_tools(session), run)
    except UnusableTool as slip:
        raise ConfigError(f"A tool of the MCP server cannot be used: {slip}.") from None


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _list_tools(session: ClientSession) -> Sequence[ToolSpec]:
    """All tools, page after page."""
    from mcp.types import PaginatedRequestParams

    found: list[ToolSpec] = []
    cursor: str | None = None
    while True:
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += [ToolSpec(one.name, one.description or "", dict(one.input_schema)) for one in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found


def _result_text(result: Any) -> str:
    """What a tool returned, as text: its words, or its data where it has none.

    Raises:
        ToolFailed: If the tool says that it failed.
    """
    parts = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [to_json_bytes(result.structured_content).decode()]
    text = "\n".join(parts)
    if result.is_error:
        raise ToolFailed(text or "the tool failed")
    return text
