"""`Progent`: rules in code in front of every tool call, written by a policy model from the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.models.chat import ChatModel
from agentsys.models.loop import default_system_message, tool_loop
from agentsys.models.simulated.role import SimulatedRole
from agentsys.options import checked
from baselines.progent.description import described
from baselines.progent.fixes import ALL, NONE
from baselines.progent.gate import GatedTools
from baselines.progent.narrower import require_z3
from baselines.progent.policy_steps import BeginTask, UpdateRules
from baselines.progent.prompts import prompts_of
from baselines.progent.rule_form import read_rules
from baselines.progent.settings import ProgentSettings
from baselines.progent.simulated import ROLES


class Progent:
    """Progent: a call runs only as a policy allows that was written before anything was read.

    Args:
        name: The name in records and tables.
        compat: Behave as the reference implementation does, defects included (see `fixes`).
        generate: Have a policy written for each request. Without it the other rules alone hold.
        update: Have it looked at again after each turn, by a model that reads the results.
        conditions: Whether rules restrict arguments; False: a list of allowed tools.
        base_rules: `suite`: tools that only read may always be called (from the suite's file, or told from
            names where it has none); `none`.
        rules: Rules of one's own, tool -> list of rules (see docs/baselines/progent.md).
        wording: The first question: `general`, or for Agent Security Bench `asb` or `asb_hinted`.
        on_update_error: Where no reply to an update could be read: `keep` the old rules, or `raise`.
        only_narrow: Take a rewritten policy only if it allows nothing more; needs the extra `z3`.
        repair_array_enums: Put a list of single values for an array where its elements are described.
        max_rounds: Most rounds of tool calls.

    Raises:
        ConfigError: If an option has a value it cannot have.

    Source: Shi et al., arXiv 2504.11703; github.com/sunblaze-ucb/progent.
    """

    forecast_kind = "bound"

    def __init__(
        self,
        name: str = "progent",
        *,
        compat: bool = False,
        rules: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        own, mended = read_rules(name, rules), NONE if compat else ALL
        self.settings = checked(ProgentSettings, name, options, fixes=mended, rules=own)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The plain agent behind the gate."""
        settings = self.settings
        updates = [UpdateRules(model, settings)] if settings.generate and settings.update else []
        return tool_loop(
            model,
            default_system_message(suite),
            name=f"{model.name}-{self.name}",
            before=[BeginTask(model, settings, suite.name)],
            tools=GatedTools(),
            after_results=updates,
            max_rounds=settings.max_rounds,
        )

    def ready(self) -> None:
        """Look whether the narrow-only check has its package.

        Raises:
            Unavailable: If it is asked for and its package is not there.
        """
        if self.settings.only_narrow:
            require_z3(self.name)

    def description(self) -> str:
        """Who makes the rules, what they hold, and when they change."""
        return described(self.settings)

    def prompts(self) -> dict[str, str]:
        """Every text this defense adds, by name."""
        settings = self.settings
        return prompts_of(settings.wording, update=settings.generate and settings.update)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """How the simulated model plays the policy model."""
        return ROLES
