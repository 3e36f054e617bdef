"""A model with replies for planner and spokes, tools that note what ran, and a short way to run a task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentdojo.types import ChatMessage
from noting_tools import Tools
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.prompted_tools import FINISH_ACTION, OWN, Action, find_text_between_tags, write_action
from agentsys.models.trace import Span, Tracer, use_tracer
from baselines.isolategpt import IsolateGPT
from baselines.isolategpt.app_plan import PLANNER_ROLE as PLANNER_ROLE
from baselines.isolategpt.defense import EXTRA, IsolateGPTAgent

QUERY = "Pay the bill in bill.txt."
ROUTING, VANILLA = "", "vanilla"
"""Keys for replies of the two spokes without tools."""


def planned(*steps: tuple[str, Mapping[str, Any], str]) -> str:
    """A planner's reply."""
    return json.dumps({"steps": [{"name": n, "input": dict(i), "output": o} for n, i, o in steps]})


def act(name: str, **args: Any) -> str:
    return write_action(Action(name, args), "next")


def finish(text: str) -> str:
    return write_action(Action(FINISH_ACTION, text))


class SpokeModel(ScriptedModel):
    """Plays planner and spokes.

    Args:
        plan: The planner's replies.
        spokes: Names of a spoke's own tools, joined by `+` -> its replies.
    """

    def __init__(self, plan: str | Sequence[str], **spokes: str | Sequence[str]) -> None:
        super().__init__({"planner": plan, **spokes}, repeat=True)

    def script_of(self, request: ChatRequest) -> str:
        return who_asks(request)


def who_asks(request: ChatRequest) -> str:
    """`planner`, or a spoke by its tools."""
    if request.role == PLANNER_ROLE:
        return "planner"
    own = find_text_between_tags(text_of(request.messages[0]), OWN)
    if own is None:
        return VANILLA
    return "+".join(json.loads(line)["name"] for line in own.strip().splitlines())


Desk = partial(Tools, without=("mail",))

READ_THEN_PAY = planned(("read_bill", {}, "bill"), ("pay", {"to": "<bill>", "amount": 5}, "done"))
READ_ONLY = planned(("read_bill", {}, "bill"))


@dataclass(frozen=True)
class Done:
    """A task that was worked on."""

    messages: list[ChatMessage]
    spans: list[Span]
    kept: Mapping[str, Any]
    """What the pipeline hands back in its extra arguments."""

    @property
    def answer(self) -> str:
        return text_of(self.messages[-1])

    @property
    def prompts(self) -> list[tuple[str, str | None, str, bool, bool]]:
        """Kind, requester, app, expected, allowed of every prompt."""
        return [tuple(prompt.values()) for prompt in self.kept["permissions"]]

    def said(self, kind: str) -> list[Mapping[str, Any]]:
        """The messages of a type between spokes and hub."""
        return [message for message in self.kept["messages"] if message["type"] == kind]


def run(model: Any, desk: Tools, **options: Any) -> Done:
    """Work on the task with a variant of the defense."""
    agent = IsolateGPTAgent(model, IsolateGPT(**options).settings)
    first: ChatMessage = {"role": "user", "content": [{"type": "text", "content": QUERY}]}
    with use_tracer(Tracer()) as tracer:
        result = agent.query(QUERY, desk.runtime, messages=[first])
    return Done(list(result[3]), tracer.spans, result[4][EXTRA])
