#!/usr/bin/env bash
# Guess: a request without tools offers the model no tool.
# Seen: where the history has calls and the request has no tools, Anthropic's model is offered a tool named dummy_tool.
# Where: litellm/llms/anthropic/chat/transformation.py, since Anthropic refuses such a history otherwise.
# Why it matters: asking for a final answer without tools is how a harness ends a loop, and how quarantined readers are kept
# from acting. The model still has a tool to call, and a call of it is a call of no tool that the harness knows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install litellm==1.110.2
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR "$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import litellm
from litellm.llms.anthropic.chat.transformation import AnthropicConfig

litellm.suppress_debug_info = True
call = {"id": "c1", "type": "function", "function": {"name": "read_mail", "arguments": "{}"}}
messages = [
    {"role": "user", "content": "Sum up my mail."},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "content": "Lunch at noon."},
]
sent = AnthropicConfig().transform_request("claude-sonnet-4-5", messages, {}, {}, {})
print("litellm", version("litellm"), "| tools offered:", [tool["name"] for tool in sent["tools"]])
assert [tool["name"] for tool in sent["tools"]] == ["dummy_tool"]
PYTHON
