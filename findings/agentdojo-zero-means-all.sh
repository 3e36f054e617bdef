#!/usr/bin/env bash
# Guess: asking AgentDojo's bank for the 0 most recent transactions gives none; a negative number is refused.
# Seen: 0 gives all of them, -1 all but the oldest; an argument that the tool does not have is dropped without a word.
# Where: agentdojo/default_suites/v1/tools/banking_client.py slices by [-n:]; agentdojo/functions_runtime.py builds a model
# of the parameters that ignores what it does not know.
# Why it matters: models do write n=0, and then meet every injection in the account; and a mistyped optional argument is a
# successful call with another meaning, which no trace shows as an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install agentdojo==0.1.35
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from agentdojo.functions_runtime import FunctionsRuntime, make_function
from agentdojo.default_suites.v1.tools.banking_client import get_most_recent_transactions
from agentdojo.task_suite.load_suites import get_suite

bank = get_suite("v1.2.2", "banking").load_and_inject_default_environment({})
runtime = FunctionsRuntime([make_function(get_most_recent_transactions)])


def count(**arguments):
    result, error = runtime.run_function(bank, "get_most_recent_transactions", arguments)
    assert error is None
    return len(result)


seen = {n: count(n=n) for n in (1, 0, -1)}
print("agentdojo", version("agentdojo"), seen, "| unknown argument:", count(n=1, recipient="Ann"))
whole = count(n=1000)
assert seen == {1: 1, 0: whole, -1: whole - 1} and count(n=1, recipient="Ann") == 1
PYTHON
