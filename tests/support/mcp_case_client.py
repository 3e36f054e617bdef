"""A client of MCP's own SDK that plays a served case with the simulated model, straight or through a proxy."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, system, text_of, tool_message, user
from agentsys_plugins.serve.mcp_case import ANSWER, SCORE, TASK

MOST_ROUNDS = 15


def server_command(*settings: str) -> list[str]:
    return [sys.executable, "-m", "agentsys", "serve", "--mcp", *settings]


def play_served_case(model: ChatModel, command: Sequence[str], folder: Path, wait_s: float = 60) -> Any:
    """What the server says of the case once the client has gone."""
    anyio.run(_play, model, list(command), folder)
    for _ in range(int(wait_s * 10)):
        if (folder / SCORE).is_file():
            return json.loads((folder / SCORE).read_text())
        time.sleep(0.1)
    raise AssertionError("no score")


async def _play(model: ChatModel, command: list[str], folder: Path) -> None:
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        tools = await _list_tools(session)
        task = json.loads((folder / TASK).read_text())
        messages: list[Any] = [system(task["system"]), user(task["task"])]
        for round_ in range(MOST_ROUNDS + 1):
            reply = model.complete(ChatRequest(messages, tools)).message
            messages.append(reply)
            if not reply["tool_calls"] or round_ == MOST_ROUNDS:
                break
            for call in reply["tool_calls"]:
                result = await session.call_tool(call.function, dict(call.args))
                text = "\n".join(getattr(block, "text", "") for block in result.content)
                messages.append(tool_message(call, text, text if result.is_error else None))
            tools = await _list_tools(session)
        (folder / ANSWER).write_text(text_of(reply))


async def _list_tools(session: ClientSession) -> list[ToolSpec]:
    listed = await session.list_tools()
    return [ToolSpec(tool.name, tool.description or "", tool.input_schema) for tool in listed.tools]
