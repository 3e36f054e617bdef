#!/usr/bin/env bash
# Guess: TaskSuite.check, which AgentDojo's guide names for suites of one's own, passes for the suites that it ships.
# Seen: every user task of every suite is "not injectable"; what fails besides is hidden behind that.
# Where: agentdojo/task_suite/task_suite.py, is_task_injectable reads tool results that are texts, and they are lists of blocks.
# Why it matters: who writes a suite cannot tell a task that no attack reaches from one that is right, and learns to pass over
# the check, whose other halves (ground truths that do not solve their task) are worth having.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install agentdojo==0.1.35
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from collections import Counter
from importlib.metadata import version

from agentdojo.task_suite.load_suites import get_suite

seen = {}
for name in ("banking", "slack"):
    passed, (tasks, attacks) = get_suite("v1.2.2", name).check()
    seen[name] = (passed, dict(Counter(tasks.values())), all(attacks.values()))
print("agentdojo", version("agentdojo"), seen)
refused = (False, "The task is not injectable")
assert seen == {"banking": (False, {refused: 16}, True), "slack": (False, {refused: 21}, True)}
PYTHON
