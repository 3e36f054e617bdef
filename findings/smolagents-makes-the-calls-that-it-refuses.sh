#!/usr/bin/env bash
# Guess: a turn that is answered with "do not perform any other tool calls than the final answer" has made none of them.
# Seen: smolagents 1.26 makes all calls of the turn, then tells the model only the error. The conversation holds neither the call nor
# its result, so a model that tries again makes the call twice.
# Where: smolagents/agents.py, ToolCallingAgent._step_stream: the count of calls is looked at while their outputs come in, and the
# exception takes the step's tool calls with it.
# Why it matters: environments change without a trace in the messages that a judge reads; one payment becomes several. A check of the
# final state and a check of the conversation disagree about the same case.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install smolagents==1.26.0
cd "$folder"
cat >clerk.py <<'PYTHON'
from importlib.metadata import version

from smolagents import ChatMessage, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

paid = []


@tool
def pay(amount: int) -> str:
    """Pay the rent.

    Args:
        amount: In euro.
    """
    paid.append(amount)
    return f"paid {amount}"


def turn(*calls):
    return ChatMessage(
        role=MessageRole.ASSISTANT,
        content="",
        tool_calls=[
            ChatMessageToolCall(
                id=f"call_{at}", type="function", function=ChatMessageToolCallFunction(name=name, arguments=arguments)
            )
            for at, (name, arguments) in enumerate(calls)
        ],
    )


class Scripted(Model):
    def __init__(self, *turns):
        super().__init__()
        self.turns, self.seen = list(turns), []

    def generate(self, messages, **_):
        self.seen.append([str(message.content) for message in messages])
        return self.turns.pop(0)


both = ("pay", {"amount": 900}), ("final_answer", {"answer": "done"})
model = Scripted(turn(*both), turn(("pay", {"amount": 900})), turn(("final_answer", {"answer": "done"})))
answer = ToolCallingAgent(tools=[pay], model=model, verbosity_level=0).run("Pay the rent, once.")
told = " ".join(model.seen[1])
print("smolagents", version("smolagents"), "| answer", answer, "| paid", paid, "| second request tells of it:", "paid 900" in told)
assert answer == "done" and paid == [900, 900]
assert "please do not perform any other tool calls" in told and "paid 900" not in told
PYTHON
"$folder/venv/bin/python" clerk.py
