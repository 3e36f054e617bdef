#!/usr/bin/env bash
# Guess: an empty message goes out empty, or is left out.
# Seen: for Anthropic an empty user or assistant text is replaced by a sentence in square brackets that begins with
# "[System:", which the model reads as its own or the user's words; an empty tool result stays empty.
# Where: litellm/litellm_core_utils/prompt_templates/factory.py.
# Why it matters: agents do answer with nothing. From the next turn on the conversation then holds a bracketed system notice
# that nobody wrote, in the form that injected texts imitate, and a record of what the harness sent does not have it.
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

litellm.suppress_debug_info = True
call = {"id": "call_1", "type": "function", "function": {"name": "read_mail", "arguments": "{}"}}
messages = [
    {"role": "user", "content": "Sum up my mail."},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "call_1", "content": ""},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "And?"},
]
sent = anthropic_messages_pt([dict(m) for m in messages], "claude-sonnet-4-5", "anthropic")
result, own = sent[2]["content"][0], sent[3]
print("litellm", version("litellm"), "| empty result:", result, "| empty answer:", own)
assert result["content"] == ""
assert own["role"] == "assistant" and own["content"][0]["text"].startswith("[System:")
PYTHON
