"""`Drift`: plan first, then hold every call against the plan and cut planted instructions out of results."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel
from agentsys.models.loop import default_system_message
from agentsys.models.simulated.role import SimulatedRole
from baselines.drift.agent import DriftAgent
from baselines.drift.description import described
from baselines.drift.fixes import ALL, NONE
from baselines.drift.permission import Permission, PermissionBook
from baselines.drift.prompts import ENVIRONMENT, PROMPTS
from baselines.drift.settings import DriftSettings, UnreadableDetection
from baselines.drift.simulated import ROLES


class Drift:
    """DRIFT: secure planner, dynamic validator and injection isolator around a prompted agent.

    Args:
        name: The name in records and tables.
        compat: Behave as the reference implementation does, defects included (see `fixes`).
        build_constraints: The planner: a trajectory and a checklist before anything is seen.
        dynamic_validation: The validator: unplanned reads pass, unplanned actions go to a judge. Without it
            the checklist alone holds calls to the plan, which then cannot grow.
        injection_isolation: The isolator: planted instructions are cut out of tool results.
        permissions: Tool -> Read, Write or Execute, for tools not to be asked about; None asks about all.
        judge_arguments: Show the judge the proposed calls with their arguments (the reference does not).
        unreadable_detection: What becomes of a result that the detector twice gave no readable answer about:
            `withhold` (a notice stands for it) or `keep`. Without effect under `compat`, which keeps it.
        message_cap: Calls run only if the actor was asked with at most so many messages, its system message
            included.
        max_rounds: Most turns after the first.

    Raises:
        ConfigError: If a permission or `unreadable_detection` is unknown, or a limit is not positive.

    Source: Li et al., arXiv 2506.12104 (NeurIPS 2025).
    """

    def __init__(
        self,
        name: str = "drift",
        *,
        compat: bool = False,
        build_constraints: bool = True,
        dynamic_validation: bool = True,
        injection_isolation: bool = True,
        permissions: Mapping[str, str] | None = None,
        judge_arguments: bool = False,
        unreadable_detection: UnreadableDetection = "withhold",
        message_cap: int = 20,
        max_rounds: int = 15,
    ) -> None:
        self.name = name
        if unreadable_detection not in get_args(UnreadableDetection):
            known = get_args(UnreadableDetection)
            raise ConfigError(unknown_name(f"{name} unreadable_detection", unreadable_detection, known))
        if message_cap < 1 or max_rounds < 1:
            raise ConfigError(
                f"{name}: message_cap is {message_cap} and max_rounds is {max_rounds}; give 1 or more."
            )
        self._book = PermissionBook()
        self.settings = DriftSettings(
            build_constraints=build_constraints,
            dynamic_validation=dynamic_validation,
            injection_isolation=injection_isolation,
            fixes=NONE if compat else ALL,
            permissions=_permissions(name, permissions or {}),
            judge_arguments=judge_arguments,
            unreadable_detection=unreadable_detection,
            message_cap=message_cap,
            max_rounds=max_rounds,
        )

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case. No system message stands in the conversation: each call builds its own."""
        environment = f"{default_system_message(suite)}\n{ENVIRONMENT}"
        pipeline = AgentPipeline([InitQuery(), DriftAgent(model, self.settings, environment, self._book)])
        pipeline.name = f"{model.name}-{self.name}"
        return pipeline

    def description(self) -> str:
        """Which of planner, validator and isolator are on, and what each lets through."""
        return described(self.settings)

    def prompts(self) -> dict[str, str]:
        """Every text this defense adds, by name."""
        return dict(PROMPTS)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """How the simulated model plays planner, judge, isolator, classifier and formatter."""
        return ROLES


def _permissions(name: str, given: Mapping[str, str]) -> Mapping[str, Permission]:
    known = [permission.value for permission in Permission]
    for tool, word in given.items():
        if word not in known:
            raise ConfigError(unknown_name(f"permission of {tool} in {name}", str(word), known))
    return MappingProxyType({tool: Permission(word) for tool, word in given.items()})
