#!/usr/bin/env bash
# Guess: two parallel calls that share an id reach the provider as two calls, or are refused.
# Seen: for Anthropic one of the two calls is left out of the assistant turn and both results stay, so the model reads two
# results of a call that it made once; for Gemini both calls and both results are there.
# Where: litellm/litellm_core_utils/prompt_templates/factory.py, which drops a tool_use block whose id was seen in its turn.
# Why it matters: servers that give each call of a reply the same id exist. A call that changed something disappears from the
# model's own memory, so it is made again, and the same trajectory is another conversation for each provider.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install litellm==1.110.2
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR "$folder/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import litellm
from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt
from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history

litellm.suppress_debug_info = True


def call(month):
    arguments = json.dumps({"month": month})
    return {"id": "call_1", "type": "function", "function": {"name": "read_bill", "arguments": arguments}}


messages = [
    {"role": "user", "content": "Compare both bills."},
    {"role": "assistant", "content": None, "tool_calls": [call("May"), call("June")]},
    {"role": "tool", "tool_call_id": "call_1", "content": "30 EUR"},
    {"role": "tool", "tool_call_id": "call_1", "content": "45 EUR"},
]
sent = anthropic_messages_pt([dict(m) for m in messages], "claude-sonnet-4-5", "anthropic")
calls = [block["input"] for block in sent[1]["content"] if block["type"] == "tool_use"]
results = [block["content"] for block in sent[2]["content"] if block["type"] == "tool_result"]
print("litellm", version("litellm"), "| Anthropic: calls", calls, "results", results)
assert calls == [{"month": "May"}] and results == ["30 EUR", "45 EUR"]

sent = _gemini_convert_messages_with_history(messages=[dict(m) for m in messages], model="gemini-2.5-flash")
calls = [part["function_call"]["args"] for part in sent[1]["parts"]]
print("Gemini: calls", calls, "results", len(sent[2]["parts"]))
assert calls == [{"month": "May"}, {"month": "June"}] and len(sent[2]["parts"]) == 2
PYTHON
