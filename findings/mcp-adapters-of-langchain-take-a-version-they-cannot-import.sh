#!/usr/bin/env bash
# Guess: a package that pip installs without complaint can be imported.
# Seen: langchain-mcp-adapters 0.3.1 asks for mcp>=1.24 without an upper bound; pip gives it mcp 2, which no longer has
# mcp.server.fastmcp, and the import ends in ModuleNotFoundError. With mcp<2 it imports.
# Where: langchain_mcp_adapters/tools.py imports mcp.server.fastmcp at its top; the bound is missing in the package's metadata.
# Why it matters: an evaluation's environment that is made anew next month does not start, or silently stays at mcp 1 where
# another package caps it, whose servers tell what a tool raised (see mcp-hides-what-a-tool-raised).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install langchain-mcp-adapters==0.3.1 mcp==2.3.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import requires, version

wanted = [line for line in requires("langchain-mcp-adapters") if line.startswith("mcp")]
print("langchain-mcp-adapters", version("langchain-mcp-adapters"), wanted, "| mcp", version("mcp"))
assert wanted == ["mcp>=1.24.0"]
try:
    import langchain_mcp_adapters.tools
except ModuleNotFoundError as error:
    print(error.name)
    assert error.name == "mcp.server.fastmcp"
else:
    raise AssertionError("it imports")
PYTHON
