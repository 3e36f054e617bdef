#!/usr/bin/env bash
# Guess: a parameter with a default is optional for the model.
# Seen: openai-agents 0.24 puts every parameter among the required ones, defaults or not, and takes the default out of none;
# yet a call without them runs with the defaults, and a call with an unknown parameter runs without it and without a word.
# Where: agents/strict_schema.py (strict mode wants all keys), agents/function_schema.py (the check behind it is not strict).
# Why it matters: the model has to invent a value for each optional parameter, so arguments of benign calls differ from those
# that a ground truth expects; and what the schema forbids is accepted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install openai-agents==0.24.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
from importlib.metadata import version

from agents import function_tool, set_tracing_disabled
from agents.tool_context import ToolContext

set_tracing_disabled(True)


@function_tool
def pay(to: str, memo: str = "rent") -> str:
    """Pay."""
    return f"{to}, {memo}"


def run(arguments):
    context = ToolContext(context=None, tool_name="pay", tool_call_id="1", tool_arguments=arguments)
    return asyncio.run(pay.on_invoke_tool(context, arguments))


schema = pay.params_json_schema
short, unknown = run('{"to": "Ann"}'), run('{"to": "Ann", "memo": "May", "copy_to": "Bob"}')
print("openai-agents", version("openai-agents"), schema["required"], schema["additionalProperties"], "|", short, "|", unknown)
assert schema["required"] == ["to", "memo"] and schema["additionalProperties"] is False
assert short == "Ann, rent" and unknown == "Ann, May"
PYTHON
