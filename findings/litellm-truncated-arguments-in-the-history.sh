#!/usr/bin/env bash
# Guess: a call whose arguments were cut off goes back to the model as it was written, or is an error, with every provider.
# Seen: for Anthropic the arguments are completed (brackets closed) and the model reads a call that it did not make; for
# Gemini the same history ends the request in an exception.
# Where: litellm/litellm_core_utils/prompt_templates/tool_call_json_repair.py is used on one way and not on the other.
# Why it matters: replies that end at max_tokens leave such calls. A harness that keeps them in the history gets a whole
# conversation from one provider and an error from the other, so cases leave one model's rates alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install litellm==1.110.2
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR "$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import litellm
from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt
from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history

litellm.suppress_debug_info = True
call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "Ann", "amount": 12'}}
messages = [
    {"role": "user", "content": "Pay Ann 1250."},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "content": "The arguments were no JSON."},
]
sent = anthropic_messages_pt([dict(m) for m in messages], "claude-sonnet-4-5", "anthropic")
print("litellm", version("litellm"), "| Anthropic reads", sent[1]["content"][0]["input"])
assert sent[1]["content"][0]["input"] == {"to": "Ann", "amount": 12}
try:
    _gemini_convert_messages_with_history(messages=[dict(m) for m in messages], model="gemini-2.5-flash")
except Exception as error:
    print("Gemini:", type(error).__name__)
else:
    raise AssertionError("Gemini's way took it")
PYTHON
