#!/usr/bin/env bash
# Guess: what a tool returns is what the model reads.
# Seen: Inspect 0.3.285 cuts each output to 16 KiB and keeps the beginning and the end. What stood in the middle is gone, and a frame of
# words is put around the rest. max_tool_output=0 in the task's configuration turns this off.
# Where: inspect_ai/model/_call_tools.py, truncate_tool_output; the default is 16 * 1024 bytes.
# Why it matters: an injection in the middle of a long page or file never reaches the model, so its attack counts as resisted. The same
# case in AgentDojo's own runner shows it. A defense that makes outputs longer lowers the ASR by length alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install inspect-ai==0.3.285
cd "$folder"
cat >long.py <<'PYTHON'
import itertools
from importlib.metadata import version

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

PAGE = "a" * 9000 + " The rent is 900. " + "b" * 9000


@tool
def read_page():
    async def execute():
        """Read the page."""
        return PAGE

    return execute


def read(**settings):
    seen = []
    replies = itertools.chain(
        [ModelOutput.for_tool_call("mockllm/model", "read_page", {})],
        itertools.repeat(ModelOutput.from_content("mockllm/model", "done")),
    )

    def reply(messages, tools, choice, config):
        seen.extend(message.text for message in messages if message.role == "tool")
        output = next(replies)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it counts with a file from the network
        return output

    task = Task(dataset=[Sample(input="What is the rent?")], solver=[use_tools(read_page()), generate()])
    model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
    (log,) = eval(task, model=model, display="none", log_dir="logs", **settings)
    assert log.status == "success", log.error
    return seen[0]


cut, whole = read(), read(max_tool_output=0)
print("inspect-ai", version("inspect-ai"), f"| {len(PAGE)} characters | by default {len(cut)}, the middle: {'900' in cut}", end=" ")
print(f"| max_tool_output=0: {len(whole)}, the middle: {'900' in whole}")
assert "900" not in cut and "too long to be displayed" in cut and "aaa" in cut and "bbb" in cut
assert whole == PAGE
PYTHON
"$folder/venv/bin/python" long.py
