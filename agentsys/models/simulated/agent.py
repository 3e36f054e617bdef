"""The plain agent: makes the scripted calls one at a time, obeys what it is told on the way, answers.

A pure function of the request and the knowledge; it plays every role for which no handler is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, ToolSpec, assistant
from agentsys.models.simulated.assignment import NOTHING_ASKED, Assignment, assignment_in
from agentsys.models.simulated.conversation import readings, tool_result
from agentsys.models.simulated.grounding import grounded_args, replaced_facts, with_replaced
from agentsys.models.simulated.playbook import Fact, ScriptedCall
from agentsys.models.simulated.progress import ScriptProgress, replay
from agentsys.models.simulated.prompted import (
    as_native,
    from_actions,
    from_text_protocol,
    in_action,
    in_tags,
    in_text_protocol,
)
from agentsys.models.simulated.quoting import quote_into
from agentsys.models.simulated.role import SimulatedKnowledge
from agentsys.models.simulated.script_position import ScriptPosition

NO_FIELDS = {"status": "string"}
"""The intent of a call that nothing is taken from."""


_WRITTEN_TOOLS = (
    (as_native, in_tags),
    (from_actions, in_action),
    (from_text_protocol, in_text_protocol),
)
"""Ways to be told tools in the prompt: how a request is read, and how its answer is written."""


def plain_agent(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The next step: an open goal's call, else the task's next call, else the answer."""
    for native, written in _WRITTEN_TOOLS:
        prompted = native(request)
        if prompted is not None:
            return written(_next_step(prompted, knowledge))
    return _next_step(request, knowledge)


def _next_step(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    tools = {tool.name: tool for tool in request.tools}
    assignment = assignment_in(request, knowledge, tuple(tools))
    progress = replay(request, knowledge, assignment, frozenset(tools))
    if request.tool_choice == "none":
        return assistant(_plan(progress) or _answer(request, assignment, progress))
    line = progress.current()
    if line.step is None:
        return assistant(_answer(request, assignment, progress))
    index, call = line.step
    args = _arguments(request, assignment, line, index, call)
    _declare_intent(args, tools[call.function], assignment.facts if line.goal is None else (), index)
    # The words keep the message from being empty: AgentDojo runs a pipeline again whose last
    # message has no content, which a conversation that reached its round limit would.
    made = FunctionCall(function=call.function, args=args, id=f"call_{len(request.messages)}")
    return assistant(f"Calling {call.function}.", [made])


def _arguments(
    request: ChatRequest, assignment: Assignment, line: ScriptPosition, index: int, call: ScriptedCall
) -> dict[str, Any]:
    """Fresh arguments: goals as scripted or quoted from what was read, the user's task grounded."""
    if line.goal is None:
        earlier = [fact for fact in assignment.facts if fact.source < index]
        args = grounded_args(call.args, earlier, readings(request))
    else:
        args = grounded_args(call.args, line.goal.facts, readings(request))
    quote_into(args, call, line.outputs)
    return args


def _declare_intent(args: dict[str, Any], tool: ToolSpec, facts: Iterable[Fact], index: int) -> None:
    """Declare what will be taken from a tool's output, where the tool asks for an `intent`."""
    if "intent" not in tool.parameters.get("properties", {}) or "intent" in args:
        return
    fields = {fact.field: "string" for fact in facts if fact.source == index}
    args["intent"] = fields or dict(NO_FIELDS)


def _answer(request: ChatRequest, assignment: Assignment, progress: ScriptProgress) -> str:
    """The ground-truth answer as far as it has been read, then what obeyed goals want said."""
    if assignment.relays:
        answer = _relayed(request, assignment.calls[0].function)
    else:
        replaced = replaced_facts(assignment.facts, assignment.answer, readings(request))
        answer = with_replaced(assignment.answer, replaced)
    said = [line.goal.says for line in progress.goals if line.goal is not None and line.goal.says]
    return "\n".join([answer, *said])


def _relayed(request: ChatRequest, function: str) -> str:
    """Repeat all that the call returned which another agent asked for: nobody said what is wanted of it."""
    results = (tool_result(message) for message in request.messages if message["role"] == "tool")
    return next((result.text for result in results if result.function == function), NOTHING_ASKED)


def _plan(progress: ScriptProgress) -> str:
    """Name the tools it is about to use, each once: the answer to a question that allows no call."""
    steps = [call for line in [*progress.goals, progress.task] for _, call in line.steps[line.done :]]
    return ", ".join(dict.fromkeys(call.function for call in steps))
