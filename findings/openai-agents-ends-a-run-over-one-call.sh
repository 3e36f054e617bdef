#!/usr/bin/env bash
# Guess: of a turn's calls the bad one comes back to the model as an error, and the others are made.
# Seen: broken arguments do so in openai-agents 0.24. But one name that is no tool's, or two calls that share an id, end the run
# with an exception, and no call of the turn is made; the model's text refusal ends it, too.
# Where: agents/run_internal/turn_resolution.py (ModelBehaviorError, ModelRefusalError).
# Why it matters: an attack whose injected text names a tool of another framework, or a server that counts its calls from 0 in every
# reply, makes an errored case of what elsewhere is a turn with a mistake in it. If errors leave the rate, the attacked and the
# benign rate are of other cases; if they count as "not hijacked", the framework looks safe.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install openai-agents==0.24.0
cd "$folder"
OPENAI_AGENTS_DISABLE_TRACING=1 "$folder/venv/bin/python" -W ignore - 2>log <<'PYTHON' || { cat log; exit 1; }
import asyncio
from importlib.metadata import version

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from agents.exceptions import AgentsException
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputRefusal, ResponseOutputText


def say(content):
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])


class Scripted(Model):
    def __init__(self, first):
        done = say(ResponseOutputText(type="output_text", text="done", annotations=[]))
        self.turns = [first, [done]]

    async def get_response(self, *_, **__):
        return ModelResponse(output=self.turns.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


async def run(first):
    paid = []

    @function_tool
    def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    try:
        ended = (await Runner.run(Agent("clerk", model=Scripted(first), tools=[pay]), "Pay Ann and Bob.")).final_output
    except AgentsException as error:
        ended = type(error).__name__
    return ended, paid


def call(name, arguments, call_id):
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=arguments, call_id=call_id)


async def main():
    good = call("pay", '{"to": "Bob"}', "call_2")
    turns = {
        "broken arguments": [call("pay", '{"to": "Ann"', "call_1"), good],
        "unknown name": [call("send_money", '{"to": "Ann"}', "call_1"), good],
        "one id": [call("pay", '{"to": "Ann"}', "call_2"), good],
        "refusal": [say(ResponseOutputRefusal(type="refusal", refusal="No."))],
    }
    seen = {name: await run(turn) for name, turn in turns.items()}
    print("openai-agents", version("openai-agents"), *(f"| {name}: {what}" for name, what in seen.items()))
    assert seen == {
        "broken arguments": ("done", ["Bob"]),
        "unknown name": ("ModelBehaviorError", []),
        "one id": ("ModelBehaviorError", []),
        "refusal": ("ModelRefusalError", []),
    }


asyncio.run(main())
PYTHON
