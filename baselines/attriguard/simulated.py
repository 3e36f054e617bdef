"""The simulated model's play of the shadow run, the attenuator and the judge."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.simulated.agent import plain_agent
from agentsys.models.simulated.passages import without_found
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from baselines.attriguard.audit import ATTENUATOR, JUDGE_ROLE, SHADOW
from baselines.border.asking import inside_fences


def play_shadow(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The same mind as the agent's: under its role, so that every draw is the same."""
    return plain_agent(replace(request, role="agent"), knowledge)


def play_attenuator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The text without the goals that were found in it, else as it is."""
    text = inside_fences(text_of(request.messages[-1]))
    return assistant(without_found(text, ATTENUATOR, knowledge).strip() or "Nothing is reported.")


def play_judge(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """True of a call of the user task's ground truth."""
    lines = text_of(request.messages[-1])
    task = knowledge.task_in(lines.partition("\n\nProposed call: ")[0])
    call = json.loads(lines.partition("\n\nProposed call: ")[2].partition("\n")[0])
    right = task is not None and any(
        scripted.function == call["tool"]
        and all(_plain(call["args"].get(name)) == _plain(value) for name, value in scripted.args.items())
        for scripted in task.calls
    )
    return assistant(json.dumps({"legitimate": right, "reason": "I compared it with the task."}))


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str).casefold()


ROLES: dict[str, SimulatedRole] = {SHADOW: play_shadow, ATTENUATOR: play_attenuator, JUDGE_ROLE: play_judge}
