#!/usr/bin/env bash
# Guess: AgentDojo asks OpenAI's models at temperature 0, its default, as its paper says.
# Seen: 0.1.26 sends 0.0; 0.1.27 and all later versions send no temperature, so the provider's own (1.0) holds. 0.5 is sent.
# Where: agentdojo/agent_pipeline/llms/openai_llm.py, "temperature or NOT_GIVEN": zero counts as nothing given.
# Why it matters: rows that were printed before and after, or by AgentDojo and by another harness, are drawn at different
# temperatures under one label, and repeats that should agree differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/python" -m pip -q --disable-pip-version-check install)
"${pip[@]}" agentdojo==0.1.35 openai==2.54.0
for version in 0.1.26 0.1.27; do "${pip[@]}" --no-deps --target "$folder/$version" "agentdojo==$version"; done
cd "$folder"
cat > asked.py <<'PYTHON'
import sys
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
assert sent == {0.0: float(sys.argv[1]) if sys.argv[1] != "nothing" else "not sent", 0.5: 0.5}
PYTHON
PYTHONPATH="$folder/0.1.26" "$folder/venv/bin/python" asked.py 0.0
PYTHONPATH="$folder/0.1.27" "$folder/venv/bin/python" asked.py nothing
"$folder/venv/bin/python" asked.py nothing
