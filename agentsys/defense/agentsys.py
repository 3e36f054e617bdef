"""`AgentSys`: the defense, its presets and its ablations, as one class with one YAML each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatMessage

from agentsys.defense.corrected_labels import read_corrections
from agentsys.defense.delegation import serve_turn
from agentsys.defense.description import described
from agentsys.defense.no_isolation import GuardedAgent
from agentsys.defense.privileges import book_at
from agentsys.defense.prompts import MAIN, prompts_of
from agentsys.defense.session import AgentSession, SessionElement
from agentsys.defense.settings import AgentSysSettings
from agentsys.defense.simulated.roles import ROLES
from agentsys.defense.tool_turn import next_message
from agentsys.defense.worker import Caller
from agentsys.models.chat import ChatModel
from agentsys.models.loop import default_system_message, named_pipeline
from agentsys.models.simulated.role import SimulatedRole


class AgentSys:
    """Hierarchical isolation with a return gate, a validator and a sanitizer (the paper's section 5).

    Args:
        name: The defense's name in configs, records and tables.
        privileges_dir: Folder in which the tools' labels are kept. None keeps them in memory; a run puts
            them beside its records instead.
        tool_labels: A YAML with an operator's own labels of tools, which go before a model's; None: no such.
        options: See `agentsys.defense.settings.AgentSysSettings`; without any, the paper's system.

    Raises:
        ConfigError: If an option has a value it cannot have, options contradict each other, or the labels
            cannot be read.
    """

    forecast_kind = "bound"

    keeps: ClassVar[Mapping[str, str]] = {"privileges_dir": "privileges"}

    def __init__(
        self,
        name: str = "agentsys",
        *,
        privileges_dir: str | None = None,
        tool_labels: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.corrections = read_corrections(None if tool_labels is None else Path(tool_labels))
        self.privileges_dir = None if privileges_dir is None else Path(privileges_dir)
        self.settings = AgentSysSettings.of(options)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case, as a pipeline that AgentDojo's own benchmark runs and logs."""
        message = default_system_message(suite)
        book = book_at(self.privileges_dir, self.corrections)
        agent: BasePipelineElement
        if self.settings.isolation:
            message = f"{message}\n\n{MAIN}"
            agent = MainAgent(model, self.settings, book)
        else:
            agent = GuardedAgent(model, self.settings, book)
        return named_pipeline(f"{model.name}-{self.name}", SystemMessage(message), InitQuery(), agent)

    def description(self) -> str:
        """Say what is kept apart, what crosses and what is checked, as this variant is set."""
        return described(self.settings)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Give the simulated model's play of worker, validator, sanitizer and the sorting of tools."""
        return ROLES

    def prompts(self) -> dict[str, str]:
        """Every text this variant says to a model, by name."""
        return prompts_of(self.settings)


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
