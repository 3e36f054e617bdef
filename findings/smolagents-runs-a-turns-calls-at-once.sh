#!/usr/bin/env bash
# Guess: the calls of one turn act in the order in which the model wrote them, and each result names its call.
# Seen: smolagents 1.26 runs them at once, in threads: of two calls the second may act first. The model then reads all results as one
# text, sorted by the calls' ids (call_10 before call_9), without a call's name.
# Where: smolagents/agents.py, ToolCallingAgent.process_tool_calls: a ThreadPoolExecutor, and sorted(outputs.keys()).
# Why it matters: "create the user, then pay the user" can fail or pass from run to run at temperature 0. A trace's order is
# no order of effects, and a result can be taken for another call's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install smolagents==1.26.0
cd "$folder"
cat >clerk.py <<'PYTHON'
from importlib.metadata import version
from threading import Event

from smolagents import ChatMessage, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

second_ran, order = Event(), []


@tool
def first(name: str) -> str:
    """Do the first step.

    Args:
        name: Of the step.
    """
    waited = second_ran.wait(20)
    order.append("first")
    return f"first saw the second: {waited}"


@tool
def second(name: str) -> str:
    """Do the second step.

    Args:
        name: Of the step.
    """
    order.append("second")
    second_ran.set()
    return "second is done"


def call(ident, tool_name, **arguments):
    return ChatMessageToolCall(
        id=ident, type="function", function=ChatMessageToolCallFunction(name=tool_name, arguments=arguments)
    )


def turn(*calls):
    return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=list(calls))


class Scripted(Model):
    def __init__(self, *turns):
        super().__init__()
        self.turns, self.seen = list(turns), []

    def generate(self, messages, **_):
        self.seen.append(messages[-1].content[0]["text"])
        return self.turns.pop(0)


model = Scripted(
    turn(call("call_9", "first", name="a"), call("call_10", "second", name="b")),
    turn(call("call_11", "final_answer", answer="done")),
)
ToolCallingAgent(tools=[first, second], model=model, verbosity_level=0).run("Both steps.")
print("smolagents", version("smolagents"), "| order of effects", order, "| the model reads", repr(model.seen[1]))
assert order == ["second", "first"]
assert model.seen[1] == "Observation:\nsecond is done\nfirst saw the second: True"
PYTHON
"$folder/venv/bin/python" clerk.py
