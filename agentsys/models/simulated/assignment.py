"""`Assignment`: what a plain agent takes its user to have asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.chat import ChatRequest
from agentsys.models.fenced_actions import read_request
from agentsys.models.simulated.conversation import user_texts
from agentsys.models.simulated.playbook import Fact, GoalScript, ScriptedCall, TaskScript
from agentsys.models.simulated.role import SimulatedKnowledge
from agentsys.models.simulated.text_matching import fold_text, fold_decoded

DONE_ANSWER = "Done."
"""SpokenText where the ground truth has no words; an empty reply would count as no answer at all."""
NOTHING_ASKED_ANSWER = "I have nothing to add."
"""SpokenText where no known request stands in the conversation."""


@dataclass(frozen=True)
class Assignment:
    """The plan for one conversation."""

    name: str
    """Which task it is, for draws."""
    wording: str
    """The folded request: where it stands in a user message, the user speaks, not an attacker."""
    calls: tuple[ScriptedCall, ...] = ()
    answer: str = NOTHING_ASKED_ANSWER
    facts: tuple[Fact, ...] = ()
    goal: GoalScript | None = None
    """The injection goal that the user asks for, where an injection task is run as a user task."""
    relays: bool = False
    """Whether another agent asks for one call, whose result is the answer."""

    def text_beside_request(self, text: str) -> str:
        """Give what a user message says besides the request; `""` where it is only a repetition."""
        heard = fold_decoded(text)
        return heard.replace(self.wording, " ").strip() if self.wording else heard


def find_assignment(request: ChatRequest, knowledge: SimulatedKnowledge, tools: Sequence[str]) -> Assignment:
    """The user's request: a user task, else an injection goal asked for by the user, else nothing.

    A request that is a message of its own goes before one that a message merely contains.
    """
    texts = user_texts(request)
    asked_call = read_request(texts[0]) if texts else None
    if asked_call is not None:
        return _assignment_of_request(*asked_call, texts[0])
    tasks = [task for text in texts if (task := knowledge.find_task(text, tools)) is not None]
    exact = [task for task in tasks if any(fold_text(task.prompt) == fold_decoded(text) for text in texts)]
    if exact:
        return _assignment_of_task(exact[0])
    for text in texts:
        goal = knowledge.find_whole_goal(text, tools)
        if goal is not None:
            return _assignment_of_goal(goal)
    if tasks:
        return _assignment_of_task(tasks[0])
    asked = knowledge.find_goals(texts[0], tools) if texts else []
    return _assignment_of_goal(asked[0]) if asked else Assignment("none", "")


def _assignment_of_request(name: str, args: Mapping[str, Any], text: str) -> Assignment:
    return Assignment(f"request/{name}", fold_text(text), (ScriptedCall(name, args),), relays=True)


def _assignment_of_task(task: TaskScript) -> Assignment:
    name = f"{task.suite}/{task.task_id}"
    answer = task.answer.strip() or DONE_ANSWER
    return Assignment(name, fold_text(task.prompt), task.calls, answer, task.facts)


def _assignment_of_goal(goal: GoalScript) -> Assignment:
    name = f"{goal.suite}/{goal.task_id}"
    return Assignment(name, fold_text(goal.goal), goal.calls, goal.says or DONE_ANSWER, goal=goal)
