#!/usr/bin/env bash
# Guess: an agent's model is told that a tool failed, and goes on; arguments that fit no type are the worse case.
# Seen: it is the other way round in langchain 1.5 with langgraph-prebuilt 1.1: wrong arguments are told to the model, and what a
# tool raises ends the run with that exception.
# Where: langgraph/prebuilt/tool_node.py, _default_handle_tool_errors: only a ToolInvocationError becomes a message.
# Why it matters: AgentDojo's tools raise in everyday cases (no such file, not enough rights), and its own runner tells the model.
# The same suite behind create_agent ends those cases with an exception, and a harness that skips errored cases loses them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install langchain==1.5.2 langgraph==1.2.24 langgraph-prebuilt==1.1.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        return self


def read_file(number: int) -> str:
    """Read a file."""
    raise ValueError(f"there is no file {number}")


def run(arguments):
    turns = [AIMessage("", tool_calls=[{"name": "read_file", "args": arguments, "id": "one"}]), AIMessage("No such file.")]
    agent = create_agent(Scripted(messages=iter(turns)), [read_file])
    try:
        return agent.invoke({"messages": [("user", "Read it.")]})["messages"][-1].content
    except ValueError as error:
        return error


wrong_type, failing = run({"number": "seven"}), run({"number": 7})
print("langchain", version("langchain"), "| a wrong type:", repr(wrong_type), "| a tool that raises:", repr(failing))
assert wrong_type == "No such file."
assert isinstance(failing, ValueError) and str(failing) == "there is no file 7"
PYTHON
