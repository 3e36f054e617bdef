#!/usr/bin/env bash
# Guess: when a reply holds the final answer and a call of another tool, the run ends and the call is not made.
# Seen: pydantic-ai 2.68 makes the call, before and behind the answer alike, and returns the answer; its version 1 skipped
# such calls by default.
# Where: pydantic_ai/agent/__init__.py: the default of end_strategy is "graceful" now, "early" before.
# Why it matters: a hijacked reply can put an action beside a harmless answer. A harness that scores the final output alone
# sees nothing; the action happened. Traces made with both major versions differ in side effects for the same replies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install pydantic-ai-slim==2.68.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel


class Answer(BaseModel):
    total: int


def calls_made(strategy=None):
    reply = [
        ToolCallPart("final_result", {"total": 3}, tool_call_id="one"),
        ToolCallPart("send_money", {"to": "Ann"}, tool_call_id="two"),
    ]
    settings = {"end_strategy": strategy} if strategy else {}
    agent = Agent(FunctionModel(lambda messages, info: ModelResponse(reply)), output_type=Answer, **settings)
    made = []

    @agent.tool_plain
    def send_money(to: str) -> str:
        made.append(to)
        return "sent"

    assert agent.run_sync("Sum up.").output == Answer(total=3)
    return made


print("pydantic-ai", version("pydantic-ai-slim"), "| by default", calls_made(), "| early", calls_made("early"))
assert calls_made() == ["Ann"] and calls_made("early") == []
PYTHON
