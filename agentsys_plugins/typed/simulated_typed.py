"""Simulated model's handlers for the roles of `agentsys_typed`: AgentSys's, and the derivation of a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from agentdojo.types import ChatAssistantMessage

from agentsys.defense.prompts import read_sections
from agentsys.defense.simulated_agentsys import SIMULATED_ROLES, read_task_text
from agentsys.models.chat import ChatRequest, assistant
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from agentsys_plugins.typed.prompts import TASK_POLICY_SECTIONS

TASK_POLICY_ROLE = "task_policy"
"""Asked by `agentsys_typed_derived` (agentsys_plugins.typed.value_judge)."""


def play_task_policy(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Name the commands of the user task's ground truth, each with the whole request as its reason."""
    sections = read_sections(read_task_text(request), TASK_POLICY_SECTIONS)
    task = knowledge.find_task(sections[1]) if sections is not None else None
    calls = task.calls if task is not None else ()
    because = sections[1] if sections is not None else ""
    return assistant(json.dumps({"commands": {call.function: {"because": because} for call in calls}}))


SIMULATED_TYPED_ROLES: Mapping[str, SimulatedRole] = MappingProxyType(
    {**SIMULATED_ROLES, TASK_POLICY_ROLE: play_task_policy}
)
"""Role -> handler."""
