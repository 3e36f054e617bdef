#!/usr/bin/env bash
# Guess: a text that the model writes for an optional text parameter arrives as that text.
# Seen: with the parameter "str | None" the text "null" arrives as None; with plain "str" it arrives as "null". With
# "dict | str" a text that is a JSON object arrives as a dict, a text that is a number stays a text.
# Where: mcp/server/mcpserver/utilities/func_metadata.py reads strings as JSON before they are checked, unless the parameter's
# annotation is exactly str.
# Why it matters: the arguments that a policy judged are not those that the tool got. A check on the client's side saw a text;
# the tool works on an object with fields of its own.
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

server = MCPServer("notes")


@server.tool()
def plain(text: str) -> str:
    """Show it."""
    return repr(text)


@server.tool()
def optional(text: str | None = "default") -> str:
    """Show it."""
    return repr(text)


@server.tool()
def either(body: dict | str) -> str:
    """Show it."""
    return repr(body)


async def main():
    async with Client(server) as client:
        async def show(tool, **arguments):
            return (await client.call_tool(tool, arguments)).content[0].text

        return [
            await show("plain", text="null"),
            await show("optional", text="null"),
            await show("either", body='{"to": "Ann"}'),
            await show("either", body="5"),
        ]


seen = asyncio.run(main())
print("mcp", version("mcp"), seen)
assert seen == ["'null'", "None", "{'to': 'Ann'}", "'5'"]
PYTHON
