"""The simulated model's play of PromptArmor's guard."""

from __future__ import annotations

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.simulated.passages import found_passages
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from baselines.border.asking import inside_fences
from baselines.promptarmor.guard import ROLE
from baselines.promptarmor.prompts import MARKER


def play_guard(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Yes with the first passage that was found, else No. It quotes one text, as the question asks for."""
    text = text_of(request.messages[-1])
    found = found_passages(inside_fences(text) or text, ROLE, knowledge)
    return assistant(f"Yes. {MARKER} {found[0]}" if found else "No")


ROLES: dict[str, SimulatedRole] = {ROLE: play_guard}
