"""MCP's own server and client: what a model reads of a tool that failed, and what a tool gets of a text."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the mcp extra")


def call(tool: Any, **arguments: Any) -> str:
    from mcp import Client
    from mcp.server import MCPServer

    async def ask() -> str:
        async with Client(server) as client:
            result: Any = await client.call_tool(tool.__name__, arguments)
            return str(result.content[0].text)

    server = MCPServer("bank")
    server.tool()(tool)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return asyncio.run(ask())


def test_what_a_tool_raised_does_not_reach_the_client() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        raise ValueError("the balance is 3")

    assert call(pay, amount=5) == "Error executing tool pay"


def test_a_refused_argument_is_told_in_full() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    told = call(pay, amount="five")
    assert "validation error" in told and "five" in told


def test_an_optional_text_null_is_none_and_a_plain_one_is_the_word() -> None:
    def optional(text: str | None = "default") -> str:
        """Show."""
        return repr(text)

    def plain(text: str) -> str:
        """Show."""
        return repr(text)

    assert call(optional, text="null") == "None"
    assert call(plain, text="null") == "'null'"
