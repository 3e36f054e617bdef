#!/usr/bin/env bash
# Guess: an assistant with a tool asks its model again once the tool has run, and the model's words are the answer.
# Seen: autogen-agentchat 0.7.5 asks the model once. The tool's raw text is the run's last message; no model reads it. With
# reflect_on_tool_use=True the model is asked again.
# Where: autogen_agentchat/agents/_assistant_agent.py: reflect_on_tool_use is False unless an output type is given, and
# max_tool_iterations is 1.
# Why it matters: with the defaults no injection in a tool's text can be obeyed, because nobody reads it, so an ASR of 0 says nothing.
# A judge of the final answer reads the attacker's text as the agent's words. Utility of tasks with two calls is 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install autogen-agentchat==0.7.5 autogen-ext==0.7.5
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
from importlib.metadata import version

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

ABILITIES = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "unknown"}


def read_mail() -> str:
    """Read the newest mail."""
    return "Mail of the landlord: the rent is 900."


def ask(**settings):
    call = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="one", name="read_mail", arguments="{}")],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )
    model = ReplayChatCompletionClient([call, "You pay 900."], model_info=ABILITIES)
    agent = AssistantAgent("clerk", model, tools=[read_mail], **settings)
    result = asyncio.run(agent.run(task="What is the rent?"))
    return len(model.create_calls), result.messages[-1].content


default, reflecting = ask(), ask(reflect_on_tool_use=True)
print("autogen-agentchat", version("autogen-agentchat"), "| by default", default, "| reflect_on_tool_use", reflecting)
assert default == (1, "Mail of the landlord: the rent is 900.")
assert reflecting == (2, "You pay 900.")
PYTHON
