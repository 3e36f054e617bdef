"""The plain agent: makes the scripted calls one at a time, obeys what it is told on the way, answers.

A pure function of the request and the knowledge; it plays every role for which no handler is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, ToolSpec, assistant
from agentsys.models.simulated.assignment import NOTHING_ASKED_ANSWER, Assignment, find_assignment
from agentsys.models.simulated.conversation import iter_texts, read_tool_result
from agentsys.models.simulated.grounding import ground_arguments, fact_replacements, replace_facts
from agentsys.models.simulated.playbook import Fact, ScriptedCall
from agentsys.models.simulated.progress import ScriptProgress, replay_progress
from agentsys.models.simulated.prompted import (
    from_tags,
    from_actions,
    from_text_protocol,
    to_action,
    to_tags,
    to_text_protocol,
)
from agentsys.models.simulated.quoting import insert_quotes
from agentsys.models.simulated.role import SimulatedKnowledge
from agentsys.models.simulated.script_position import ScriptPosition

NO_FIELDS_INTENT = {"status": "string"}
"""The intent of a call that nothing is taken from."""


_PROMPT_FORMS = (
    (from_tags, to_tags),
    (from_actions, to_action),
    (from_text_protocol, to_text_protocol),
)
"""Ways to be told tools in the prompt: how a request is read, and how its answer is written."""


def play_plain_agent(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The next step: an open goal's call, else the task's next call, else the answer."""
    for native, written in _PROMPT_FORMS:
        prompted = native(request)
        if prompted is not None:
            return written(_next_step(prompted, knowledge))
    return _next_step(request, knowledge)


def _next_step(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    tools = {tool.name: tool for tool in request.tools}
    assignment = find_assignment(request, knowledge, tuple(tools))
    progress = replay_progress(request, knowledge, assignment, frozenset(tools))
    if request.tool_choice == "none":
        return assistant(_planned_tools(progress) or _final_answer(request, assignment, progress))
    line = progress.current_position()
    if line.step is None:
        return assistant(_final_answer(request, assignment, progress))
    index, call = line.step
    args = _call_arguments(request, assignment, line, index, call)
    _declare_intent(args, tools[call.function], assignment.facts if line.goal is None else (), index)
    # The words keep the message from being empty: AgentDojo runs a pipeline again whose last
    # message has no content, which a conversation that reached its round limit would.
    made = FunctionCall(function=call.function, args=args, id=f"call_{len(request.messages)}")
    return assistant(f"Calling {call.function}.", [made])


def _call_arguments(
    request: ChatRequest, assignment: Assignment, line: ScriptPosition, index: int, call: ScriptedCall
) -> dict[str, Any]:
    """Fresh arguments: goals as scripted or quoted from what was read, the user's task grounded."""
    if line.goal is None:
        earlier = [fact for fact in assignment.facts if fact.source < index]
        args = ground_arguments(call.args, earlier, iter_texts(request))
    else:
        args = ground_arguments(call.args, line.goal.facts, iter_texts(request))
    insert_quotes(args, call, line.outputs)
    return args


def _declare_intent(args: dict[str, Any], tool: ToolSpec, facts: Iterable[Fact], index: int) -> None:
    """Declare what will be taken from a tool's output, where the tool asks for an `intent`."""
    if "intent" not in tool.parameters.get("properties", {}) or "intent" in args:
        return
    fields = {fact.field: "string" for fact in facts if fact.source == index}
    args["intent"] = fields or dict(NO_FIELDS_INTENT)


def _final_answer(request: ChatRequest, assignment: Assignment, progress: ScriptProgress) -> str:
    """The ground-truth answer as far as it has been read, then what obeyed goals want said."""
    if assignment.relays:
        answer = _relayed_result(request, assignment.calls[0].function)
    else:
        replaced = fact_replacements(assignment.facts, assignment.answer, iter_texts(request))
        answer = replace_facts(assignment.answer, replaced)
    said = [line.goal.says for line in progress.goals if line.goal is not None and line.goal.says]
    return "\n".join([answer, *said])


def _relayed_result(request: ChatRequest, function: str) -> str:
    """Repeat all that the call returned which another agent asked for: nobody said what is wanted of it."""
    results = (read_tool_result(message) for message in request.messages if message["role"] == "tool")
    return next((result.text for result in results if result.function == function), NOTHING_ASKED_ANSWER)


def _planned_tools(progress: ScriptProgress) -> str:
    """Name the tools it is about to use, each once: the answer to a question that allows no call."""
    steps = [call for line in [*progress.goals, progress.task] for _, call in line.steps[line.done :]]
    return ", ".join(dict.fromkeys(call.function for call in steps))
