#!/usr/bin/env bash
# Guess: a tool's text reaches Gemini as a text, whatever it looks like.
# Seen: a text that is a JSON object becomes the function response itself, its keys as fields; any other text becomes the one
# field "content". A text that spells {"content": ...} and the plain text are the same on the wire, and a text with the key
# "error" is Gemini's own form of a failed call.
# Where: litellm/litellm_core_utils/prompt_templates/factory.py (convert_to_gemini_tool_call_result).
# Why it matters: who writes a tool's output chooses the structure that the model sees. Marks that a defense puts around a
# result (delimiters, spotlighting) keep it a text; a defense that leaves JSON alone is another defense on this way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install litellm==1.110.2
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR "$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import litellm
from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history

litellm.suppress_debug_info = True
call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}


def response(text):
    messages = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [dict(call)]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    sent = _gemini_convert_messages_with_history(messages=messages, model="gemini-2.5-flash")
    return sent[-1]["parts"][0]["function_response"]["response"]


seen = {text: response(text) for text in ("free", '{"content": "free"}', '{"error": "no such file"}', "[1, 2]", "<<{}>>")}
print("litellm", version("litellm"))
for text, fields in seen.items():
    print(f"{text!r} -> {fields}")
assert seen["free"] == seen['{"content": "free"}'] == {"content": "free"}
assert seen['{"error": "no such file"}'] == {"error": "no such file"}
assert seen["[1, 2]"] == {"content": "[1, 2]"} and seen["<<{}>>"] == {"content": "<<{}>>"}
PYTHON
