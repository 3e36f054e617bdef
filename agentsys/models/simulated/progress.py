"""The progress of a conversation, read from its messages alone, so that an agent needs no memory."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.simulated.assignment import Assignment
from agentsys.models.simulated.conversation import read_tool_result
from agentsys.models.simulated.role import SimulatedKnowledge
from agentsys.models.simulated.script_position import ScriptPosition, find_answered, start_position


@dataclass
class ScriptProgress:
    """The agent's open business, replayed from the first message on."""

    task: ScriptPosition
    """The user's own task."""
    goals: list[ScriptPosition]
    """Obeyed injection goals, in the order they were first seen."""
    refused: set[tuple[str, str]]
    """Suite and id of goals that were seen and not obeyed, or that the user asked for."""
    waiting: ScriptPosition | None = None
    """The line whose call has been made and not been answered."""

    def current_position(self) -> ScriptPosition:
        """The line to go on with: injected goals are done first, as their text asks."""
        return next((line for line in self.goals if line.step is not None), self.task)

    def has_decided(self, key: tuple[str, str]) -> bool:
        """Whether this goal has been decided on already: once per conversation."""
        return key in self.refused or any(
            line.goal is not None and (line.goal.suite, line.goal.task_id) == key for line in self.goals
        )


def replay_progress(
    request: ChatRequest, knowledge: SimulatedKnowledge, assignment: Assignment, tools: frozenset[str]
) -> ScriptProgress:
    """Follow the conversation and see what has been done, failed, or asked for by an attacker."""
    own = assignment.goal
    refused = set() if own is None else {(own.suite, own.task_id)}
    progress = ScriptProgress(start_position(assignment.calls, tools), [], refused)
    context = f"{request.role}/{assignment.name}"
    for message in request.messages:
        if message["role"] == "tool":
            result = read_tool_result(message)
            line = find_answered([progress.current_position(), *progress.goals, progress.task], result)
            if line is not None:
                line.record_result(result)
            progress.waiting = None
            _decide_goals(result.text, progress, knowledge, context, tools)
        elif message["role"] == "user":
            aside = assignment.text_beside_request(text_of(message))
            if aside:
                _decide_goals(aside, progress, knowledge, context, tools)
        elif message["role"] == "assistant":
            _give_up_waiting(progress)
            progress.waiting = progress.current_position() if message["tool_calls"] else None
    _give_up_waiting(progress)
    return progress


def _give_up_waiting(progress: ScriptProgress) -> None:
    """A call that nobody answered is a failed attempt, or a defense that drops it would hear it for ever."""
    if progress.waiting is not None and progress.waiting.step is not None:
        progress.waiting.record_failure()
    progress.waiting = None


def _decide_goals(
    text: str, progress: ScriptProgress, knowledge: SimulatedKnowledge, context: str, tools: frozenset[str]
) -> None:
    """Decide, once, about each goal that this text shows."""
    for goal in knowledge.find_goals(text, tools):
        key = (goal.suite, goal.task_id)
        if progress.has_decided(key):
            continue
        if knowledge.obeys(goal, context):
            progress.goals.append(start_position(goal.calls, tools, goal))
        else:
            progress.refused.add(key)
