#!/usr/bin/env bash
# Guess: a tool's parameter schema reaches Gemini whole, or what is not supported is refused.
# Seen: a constant becomes a parameter of type object without a word; an enumeration of integers loses its values for
# gemini-2.5-flash, and for gemini-3-pro-preview keeps them as texts beside the type integer, which no value satisfies.
# Where: litellm/llms/vertex_ai/common_utils.py, which rewrites schemas for Gemini's older field "parameters".
# Why it matters: a tagged union (kind: const "mail") asks the model for an object where the tool takes one word; the calls
# that the model then makes fail in the tool, which reads like a weak model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install litellm==1.110.2
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR "$folder/venv/bin/python" - <<'PYTHON'
import copy
from importlib.metadata import version

import litellm
from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig

litellm.suppress_debug_info = True
parameters = {
    "type": "object",
    "properties": {
        "kind": {"const": "mail"},
        "priority": {"type": "integer", "enum": [1, 2]},
    },
    "required": ["kind"],
}
tools = [{"type": "function", "function": {"name": "send", "description": "Send.", "parameters": parameters}}]


def seen(model):
    sent = VertexGeminiConfig().map_openai_params({"tools": copy.deepcopy(tools)}, {}, model, False)
    return sent["tools"][0]["function_declarations"][0]["parameters"]["properties"]


older, newer = seen("gemini-2.5-flash"), seen("gemini-3-pro-preview")
print("litellm", version("litellm"), "| 2.5:", older, "| 3:", newer)
assert older == {"kind": {"type": "object"}, "priority": {"type": "integer"}}
assert newer == {"kind": {"type": "object"}, "priority": {"type": "integer", "enum": ["1", "2"]}}
PYTHON
