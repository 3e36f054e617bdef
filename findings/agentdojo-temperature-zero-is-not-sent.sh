#!/usr/bin/env bash
# Guess: AgentDojo asks OpenAI's models at temperature 0, its default, as its paper says.
# Seen: 0.1.26 passes 0.0 on; 0.1.35 (from 0.1.27 on) sends no temperature, so the provider's own (1.0) holds. 0.5 is sent.
# Where: agentdojo/agent_pipeline/llms/openai_llm.py, "temperature or NOT_GIVEN": zero counts as nothing given.
# Why it matters: rows that were printed before and after, or by AgentDojo and by another harness, are drawn at different
# temperatures under one label, and repeats that should agree differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/python" -m pip -q --disable-pip-version-check install)
"${pip[@]}" agentdojo==0.1.35 openai==2.54.0
"${pip[@]}" --no-deps --target "$folder/0.1.26" agentdojo==0.1.26
cd "$folder"
cat > asked.py <<'PYTHON'
from importlib.metadata import version
from unittest.mock import MagicMock

from agentdojo.agent_pipeline.llms.openai_llm import chat_completion_request

sent = {}
for temperature in (0.0, 0.5):
    client = MagicMock()
    chat_completion_request(client, "m", [], [], None, temperature)
    given = client.chat.completions.create.call_args.kwargs["temperature"]
    sent[temperature] = given if isinstance(given, float) else "not sent"
print("agentdojo", version("agentdojo"), sent)
assert sent == {0.0: "not sent", 0.5: 0.5}
PYTHON
# 0.1.26 itself needs Google's vertexai to be imported, so its line is read.
grep -H "temperature=temperature,$" 0.1.26/agentdojo/agent_pipeline/llms/openai_llm.py
"$folder/venv/bin/python" asked.py
