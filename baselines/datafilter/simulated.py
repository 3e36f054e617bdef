"""The simulated model's play of the filter model."""

from __future__ import annotations

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.simulated.passages import without_found
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from baselines.datafilter.element import ROLE, SEPARATOR


def play_filter(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The data without the goals that were found in them."""
    data = text_of(request.messages[-1]).partition(SEPARATOR)[2]
    return assistant(without_found(data, ROLE, knowledge))


ROLES: dict[str, SimulatedRole] = {ROLE: play_filter}
