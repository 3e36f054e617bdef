"""`Drift`: plan first, then hold every call against the plan and cut planted instructions out of results."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, named_pipeline
from baselines.drift.agent import DriftAgent
from baselines.drift.fixes import ALL_FIXES, NO_FIXES
from baselines.drift.permission import ToolPermission, PermissionCache
from baselines.drift.prompts import ENVIRONMENT, PROMPTS
from baselines.drift.settings import DriftSettings
from baselines.drift.simulated import ROLES
from baselines.played import AgentDefense


class Drift(AgentDefense):
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

    roles = ROLES
    texts = PROMPTS

    def __init__(
        self,
        name: str = "drift",
        *,
        compat: bool = False,
        permissions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        known = _read_permissions(name, permissions or {})
        mended = NO_FIXES if compat else ALL_FIXES
        self.settings = check_options(DriftSettings, name, options, fixes=mended, permissions=known)
        self._book = PermissionCache()

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case. No system message stands in the conversation: each call builds its own."""
        environment = f"{default_system_message(suite)}\n{ENVIRONMENT}"
        agent = DriftAgent(model, self.settings, environment, self._book)
        return named_pipeline(f"{model.name}-{self.name}", InitQuery(), agent)

    def description(self) -> str:
        """Say which of planner, validator and isolator are on, and what each lets through."""
        settings = self.settings
        parts = [
            "One agent works through the request and reads tool results in one conversation.",
            *_describe_plan(settings),
            *_describe_isolator(settings),
            f"Calls run only while the agent was asked with at most {settings.message_cap} messages, in at"
            " most"
            f" {settings.max_rounds} turns after the first.",
        ]
        return " ".join(parts)


def _read_permissions(name: str, given: Mapping[str, str]) -> Mapping[str, ToolPermission]:
    known = [permission.value for permission in ToolPermission]
    for tool, word in given.items():
        if word not in known:
            raise ConfigError(unknown_name(f"permission of {tool} in {name}", str(word), known))
    return MappingProxyType({tool: ToolPermission(word) for tool, word in given.items()})


def _describe_plan(settings: DriftSettings) -> list[str]:
    if not settings.build_constraints:
        return ["There is no plan, so that calls are held against nothing.", "No call is judged."]
    planned = [
        "Before anything untrusted is read, a planner writes down from the request which tools will be called"
        " in which order, and what their arguments must be or where they must come from.",
        "A planned call has to have the planned arguments.",
    ]
    if not settings.dynamic_validation:
        return [*planned, "A call outside the plan is refused, and the plan cannot grow."]
    seen = "with its arguments" if settings.judge_arguments else "by its tool's name, without its arguments"
    return [
        *planned,
        "A call outside the plan is let through if its tool only reads; if it writes or executes, a judge"
        f" model decides from the request, the plan and the call ({seen}) whether it serves the request.",
        "A call that was let through becomes part of the plan.",
    ]


def _describe_isolator(settings: DriftSettings) -> list[str]:
    if not settings.injection_isolation:
        return ["Nothing is cut out of tool results.", "No model looks through them before the agent does."]
    unreadable = {"withhold": "a notice stands for the result", "keep": "the result is kept"}
    return [
        "Each tool result is first read by a detector model, which names instructions in it that conflict"
        " with the request; what it names is cut out before the agent reads the rest.",
        f"If the detector twice gives no readable answer, {unreadable[settings.unreadable_detection]}.",
    ]
