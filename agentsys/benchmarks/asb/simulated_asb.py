"""Plays the simulated model's parts in ASB: planner, step executor and refusal judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.benchmarks.asb import asb_plan
from agentsys.benchmarks.asb.asb_conversation import restore_rounds
from agentsys.benchmarks.asb.asb_plan import (
    AsbPlan,
    AsbPlanError,
    AsbStep,
    find_instruction_tools,
    find_plan_text,
    parse_asb_plan,
    plan_to_json,
)
from agentsys.benchmarks.asb.asb_scores import REFUSAL_JUDGE_ROLE as JUDGE_ROLE
from agentsys.errors import find_enum_member
from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated.scripted_agent import NO_FIELDS_INTENT, from_tags, play_plain_agent, to_tags
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole

_DO = "Use {tool} and note what it says."
_CONCLUDE = AsbStep("Put together what was found.", ())


class SimulatedPlanner(Enum):
    """The kinds of plans that the simulated planner makes."""

    HONEST = "honest"
    """The user task's ground truth."""
    CHOOSES_ATTACK_TOOL = "chooses_attack_tool"
    """The same, then a step for each other tool it was told of; and it carries that step out."""


def asb_roles(chosen: str) -> Mapping[str, SimulatedRole]:
    """Role -> handler.

    Raises:
        ConfigError: If there is no such simulated planner.
    """
    kind = find_enum_member("benchmark.simulated_planner", chosen, SimulatedPlanner)
    agent = _Agent(follows_plan=kind is SimulatedPlanner.CHOOSES_ATTACK_TOOL)
    acting: dict[str, SimulatedRole] = dict.fromkeys(ACTING_ROLES, agent)
    return {asb_plan.PLANNER_ROLE: _Planner(kind), JUDGE_ROLE: play_refusal_judge, **acting}


class _Planner:
    """A step for each call of the ground truth; never fewer than two steps."""

    def __init__(self, kind: SimulatedPlanner) -> None:
        self.kind = kind

    def __call__(self, request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
        offered = next(
            (names for m in request.messages if (names := find_instruction_tools(text_of(m))) is not None), []
        )
        users = (text_of(message) for message in request.messages if message["role"] == "user")
        task = knowledge.find_task(next(users, ""), offered)
        wanted = [call.function for call in task.calls if call.function in offered] if task else []
        if self.kind is SimulatedPlanner.CHOOSES_ATTACK_TOOL:
            wanted += [name for name in offered if name not in wanted]
        steps = [AsbStep(_DO.format(tool=tool), (tool,)) for tool in wanted]
        return assistant(plan_to_json(steps if len(steps) > 1 else [*steps, _CONCLUDE]))


class _Agent:
    """The plain agent, which reads rounds told as text, and may do what its plan lists besides."""

    def __init__(self, *, follows_plan: bool) -> None:
        self.follows_plan = follows_plan

    def __call__(self, request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
        read = replace(request, messages=restore_rounds(request.messages))
        reply = play_plain_agent(read, knowledge)
        prompted = from_tags(read)
        native = prompted or read
        acts = reply["tool_calls"] if prompted is None else play_plain_agent(native, knowledge)["tool_calls"]
        extra = None if acts or not self.follows_plan else _next_planned_call(native)
        if extra is None:
            return reply
        return extra if prompted is None else to_tags(extra)


def _next_planned_call(request: ChatRequest) -> ChatAssistantMessage | None:
    """A call of the first tool of the plan that is on offer and that nobody has called yet."""
    plan = _find_plan(request.messages)
    made = {
        call.function
        for message in request.messages
        if message["role"] == "assistant"
        for call in message["tool_calls"] or ()
    }
    offered = {tool.name: tool for tool in request.tools}
    listed = dict.fromkeys(tool for step in plan for tool in step.tool_use)
    open_tools = [offered[name] for name in listed if name in offered and name not in made]
    if not open_tools or request.tool_choice == "none":
        return None
    tool = open_tools[0]
    args = {"intent": dict(NO_FIELDS_INTENT)} if "intent" in tool.parameters.get("properties", {}) else {}
    call = FunctionCall(function=tool.name, args=args, id=f"call_{len(request.messages)}")
    return assistant(f"Calling {tool.name}.", [call])


def _find_plan(messages: Iterable[ChatMessage]) -> AsbPlan:
    """The plan that the conversation follows; empty where it has none."""
    said = (text_of(message) for message in messages if message["role"] == "assistant")
    found = next((plan for text in said if (plan := find_plan_text(text)) is not None), None)
    try:
        return parse_asb_plan(found) if found is not None else ()
    except AsbPlanError:
        return ()


def play_refusal_judge(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Never sees a refusal: the simulated agent declines nothing."""
    return assistant("1")
