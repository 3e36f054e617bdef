"""The main agent (section 5.2): plans and answers on accepted return values alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.defense.delegation import serve_turn
from agentsys.defense.privileges import PrivilegeBook
from agentsys.defense.session import AgentSession
from agentsys.defense.settings import AgentSysSettings
from agentsys.defense.tool_turn import next_message
from agentsys.defense.worker import Caller
from agentsys.models.chat import ChatModel
from agentsys.models.element import QueryResult
from agentsys.models.trace import span

ROLE = "main"


class MainAgent(BasePipelineElement):  # type: ignore[misc]
    """The loop of the isolated main agent, as an element for AgentDojo's pipelines.

    Args:
        model: The model behind all agents of the case.
        settings: The variant of AgentSys.
        book: Where the tools' privileges are kept.
    """

    name = "agentsys_main"

    def __init__(self, model: ChatModel, settings: AgentSysSettings, book: PrivilegeBook) -> None:
        self.model = model
        self.settings = settings
        self.book = book

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Work on the user's request until the model answers or its steps are used up."""
        session = AgentSession(self.model, self.settings, self.book, query, runtime, env)
        context = list(messages)
        with span("main") as opened:
            opened.messages = context  # The same list: the span holds the context however this ends.
            opened.decision = {"finished": _converse(session, context)}
        return query, runtime, env, context, extra_args or {}


def _converse(session: AgentSession, context: list[ChatMessage]) -> bool:
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
