"""The main agent (section 5.2): plans and answers on accepted return values alone."""

from __future__ import annotations

from agentdojo.types import ChatMessage

from agentsys.defense.delegation import serve_turn
from agentsys.defense.session import AgentSession, SessionElement
from agentsys.defense.tool_turn import next_message
from agentsys.defense.worker import Caller

ROLE = "main"


class MainAgent(SessionElement):
    """The loop of the isolated main agent, as an element for AgentDojo's pipelines.

    Args:
        model: The model behind all agents of the case.
        settings: The variant of AgentSys.
        book: The book that the tools' privileges are kept in.
    """

    name = "agentsys_main"

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn; returns whether the model stopped by itself.

        Bounded like AgentDojo's loop, so that variants and baselines are compared under one limit: a first
        message, then at most `main_steps` rounds of calls, each followed by one more message.
        """
        agent = Caller()
        for step in range(session.settings.main_steps + 1):
            message = next_message(session.main_model, ROLE, context, session.tools)
            context.append(message)
            if not message["tool_calls"]:
                return True
            if step == session.settings.main_steps:
                break
            context += serve_turn(session, message["tool_calls"], agent)
        return False
