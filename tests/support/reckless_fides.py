"""FIDES with the worst planner there is: it looks at every value and does what it reads."""

from __future__ import annotations

from collections.abc import Mapping

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant
from agentsys.simulated.script_grounding import read_tool_result
from agentsys.simulated.scripted_agent import play_plain_agent
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from agentsys_plugins.rivals.fides.defense import Fides
from agentsys_plugins.rivals.fides.fides_agent import ROLE
from agentsys_plugins.rivals.fides.hidden_values import VARIABLE_NAME
from agentsys_plugins.rivals.fides.prompts import INSPECT


class RecklessFides(Fides):
    """The same defense; only how the simulated model plays the planner differs."""

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Planner and quarantined model at their worst."""
        return {**self.roles, ROLE: play_reckless_planner}


def play_reckless_planner(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The worst planner there is: looks at every value, then does what it reads."""
    looked = {
        name
        for message in request.messages
        if message["role"] == "tool" and message["tool_call"].function == INSPECT
        for name in map(str, message["tool_call"].args["variables"])
    }
    texts = [read_tool_result(message).text for message in request.messages if message["role"] == "tool"]
    seen = dict.fromkeys(f"#{name}#" for text in texts for name in VARIABLE_NAME.findall(text))
    unread = [name for name in seen if name not in looked]
    if unread and any(tool.name == INSPECT for tool in request.tools):
        made = FunctionCall(function=INSPECT, args={"variables": unread}, id=f"call_{len(request.messages)}")
        return assistant("Looking.", [made])
    return play_plain_agent(request, knowledge)
