#!/usr/bin/env bash
# Guess: a function tool gets values of the types that its schema told the model, or the model is told of its slip.
# Seen: google-adk 2.13 hands over what the model wrote: a text where a whole number is declared, None where a text is. Names that
# the function does not have are left out without a word. Only a missing argument is told to the model.
# Where: google/adk/tools/function_tool.py: types are checked behind the feature FUNCTION_TOOL_ARG_VALIDATION, which is off.
# Why it matters: an environment is changed with values that no schema admits ("7" beside 7: the check of the final state then fails),
# and a slip of a small model is counted as a call that worked. AgentDojo's own runner makes 7 of "7", and refuses None.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install google-adk==2.13.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - 2>log <<'PYTHON' || { cat log; exit 1; }
import asyncio
from importlib.metadata import version

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types


class Scripted(BaseLlm):
    turns: list

    async def generate_content_async(self, request, stream=False):
        yield LlmResponse(content=self.turns.pop(0))


def run(arguments):
    paid = []

    def pay(to: str, amount: int = 5) -> dict:
        """Pay somebody."""
        paid.append((to, amount))
        return {"done": True}

    async def converse():
        call = types.Part(function_call=types.FunctionCall(name="pay", args=arguments))
        turns = [types.Content(role="model", parts=[part]) for part in (call, types.Part(text="done"))]
        runner = InMemoryRunner(LlmAgent(name="clerk", model=Scripted(model="m", turns=turns), tools=[pay]), app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        task = types.Content(role="user", parts=[types.Part(text="Pay.")])
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=task):
            pass

    asyncio.run(converse())
    return paid


asked = {"to": "Ann", "amount": "7"}, {"to": None}, {"to": "Ann", "note": "rent"}, {"amount": 7}
made = [run(arguments) for arguments in asked]
print("google-adk", version("google-adk"), *(f"| {one} -> {calls}" for one, calls in zip(asked, made)))
assert made == [[("Ann", "7")], [(None, 5)], [("Ann", 5)], []]
PYTHON
