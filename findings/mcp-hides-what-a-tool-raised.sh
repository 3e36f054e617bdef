#!/usr/bin/env bash
# Guess: what a tool raises reaches the client as the text of a failed result, as with mcp 1.
# Seen: mcp 1.30 sends "Error executing tool pay: the balance is 3 and 5 are needed"; mcp 2.3 sends "Error executing tool pay"
# and keeps the reason for its own log. A refused argument is still explained in full.
# Where: mcp/server/mcpserver/tools/base.py (a crash of the tool is kept apart from an error that it means to tell).
# Why it matters: an agent corrects itself by what an error says. The same server, upgraded, has lower utility, and injected
# text that used to come in through error messages does not come in any more: both rates move without a change of model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install mcp==2.3.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import logging
from importlib.metadata import version

logging.disable(logging.CRITICAL)

from mcp import Client
from mcp.server import MCPServer

server = MCPServer("bank")


@server.tool()
def pay(amount: int) -> str:
    """Pay."""
    raise ValueError("the balance is 3 and 5 are needed")


async def main():
    async with Client(server) as client:
        return [(await client.call_tool("pay", {"amount": amount})).content[0].text for amount in (5, "five")]


raised, refused = asyncio.run(main())
print("mcp", version("mcp"), "|", repr(raised), "|", repr(refused.splitlines()[0]))
assert raised == "Error executing tool pay"
assert "validation error" in refused and "five" in refused
PYTHON
