"""How the simulated model plans for IsolateGPT. Spokes it plays as any agent told its tools in the prompt."""

from __future__ import annotations

from typing import Any

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.simulated.grounding import leaf_forms, leaves
from agentsys.models.simulated.playbook import ScriptedCall, TaskScript
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from agentsys.models.tagged_calls import read_tools
from baselines.isolategpt import plan
from baselines.isolategpt.plan import PlannedStep, plan_text


def play_planner(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The ground truth's calls; an argument that an earlier one's result settles is that call's key."""
    tools = [tool.name for tool in read_tools(text_of(request.messages[0]))]
    task = knowledge.task_in(text_of(request.messages[1]), tools)
    if task is None:
        return assistant(plan_text(()))
    chosen = [(index, call) for index, call in enumerate(task.calls) if call.function in tools]
    return assistant(plan_text(_step(index, call, task) for index, call in chosen))


def _step(index: int, call: ScriptedCall, task: TaskScript) -> PlannedStep:
    values = {name: _value(index, name, value, call, task) for name, value in call.args.items()}
    return PlannedStep(call.function, values, f"result_{index}")


def _value(index: int, name: str, value: Any, call: ScriptedCall, task: TaskScript) -> Any:
    quoted = [quote.source for quote in call.quotes if quote.arg == name]
    forms = [form for leaf in leaves(value) for form in leaf_forms(leaf)]
    taken = [fact.source for fact in task.facts if fact.source < index and any(fact.text in f for f in forms)]
    sources = [*quoted, *taken]
    return f"<result_{sources[0]}>" if sources else value


ROLES: dict[str, SimulatedRole] = {plan.ROLE: play_planner}
