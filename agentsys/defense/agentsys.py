"""`AgentSys`: the defense, its strict preset and its ablations, as one class with one YAML each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.defense.description import described
from agentsys.defense.main_agent import MainAgent
from agentsys.defense.no_isolation import GuardedAgent
from agentsys.defense.privileges import book_at
from agentsys.defense.prompts import MAIN, PROMPTS
from agentsys.defense.settings import Settings, gate_rule
from agentsys.defense.simulated import ROLES
from agentsys.models.chat import ChatModel
from agentsys.models.loop import default_system_message
from agentsys.models.simulated.role import SimulatedRole


class AgentSys:
    """Hierarchical isolation with a return gate, a validator and a sanitizer (the paper's section 5).

    Args:
        name: The defense's name in configs, records and tables.
        gate: `syntactic` (the paper's: any JSON object passes) or `schema` (held against the intent).
        isolation: Whether workers read tool outputs. False is the no-isolation ablation: one agent that
            sees raw outputs, its command calls judged by the validator.
        validator: Whether command calls inside a worker are judged.
        sanitizer: Whether a denial leads to a cleaned output and a new try. Without a validator, every
            output is cleaned before a worker sees it.
        validate_main: Whether the main agent's own command calls are judged too (the paper: no).
        max_depth: Deepest worker; a worker at this depth is offered no tools.
        worker_steps: Most model calls of one worker.
        main_steps: Most rounds of tool calls of the main agent (AgentDojo's bound).
        sanitize_budget: Most cleanings per tool output.
        gate_retries: How often a worker whose reply the gate refused is asked again, within its steps.
        privileges_dir: Folder in which the tools' labels are kept; None keeps them in memory.

    Raises:
        ConfigError: If an option has a value it cannot have, or options contradict each other.
    """

    def __init__(
        self,
        name: str = "agentsys",
        *,
        gate: str = "syntactic",
        isolation: bool = True,
        validator: bool = True,
        sanitizer: bool = True,
        validate_main: bool = False,
        max_depth: int = 3,
        worker_steps: int = 15,
        main_steps: int = 15,
        sanitize_budget: int = 2,
        gate_retries: int = 1,
        privileges_dir: str | None = None,
    ) -> None:
        self.name = name
        self.privileges_dir = None if privileges_dir is None else Path(privileges_dir)
        self.settings = Settings(
            gate=gate_rule(gate),
            isolation=isolation,
            validator=validator,
            sanitizer=sanitizer,
            validate_main=validate_main,
            max_depth=max_depth,
            worker_steps=worker_steps,
            main_steps=main_steps,
            sanitize_budget=sanitize_budget,
            gate_retries=gate_retries,
        )

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case, as a pipeline that AgentDojo's own benchmark runs and logs."""
        message = default_system_message(suite)
        book = book_at(self.privileges_dir)
        agent: BasePipelineElement
        if self.settings.isolation:
            message = f"{message}\n\n{MAIN}"
            agent = MainAgent(model, self.settings, book)
        else:
            agent = GuardedAgent(model, self.settings, book)
        pipeline = AgentPipeline([SystemMessage(message), InitQuery(), agent])
        pipeline.name = f"{model.name}-{self.name}"
        return pipeline

    def description(self) -> str:
        """What is kept apart, what crosses and what is checked, as this variant is set."""
        return described(self.settings)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """How the simulated model plays worker, validator, sanitizer and the sorting of tools."""
        return ROLES

    @staticmethod
    def prompts() -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        return dict(PROMPTS)
