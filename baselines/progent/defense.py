"""`Progent`: rules in code in front of every tool call, written by a policy model from the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, tool_loop
from baselines.played import RoleDefense
from baselines.progent.fixes import ALL_FIXES, NO_FIXES, ProgentFix
from baselines.progent.gate import GatedTools
from baselines.progent.narrower import require_z3
from baselines.progent.policy_steps import BeginProgentTask, UpdatePolicy
from baselines.progent.prompts import HINTED, select_prompts
from baselines.progent.rule_form import read_config_rules
from baselines.progent.settings import ProgentSettings
from baselines.progent.simulated import ROLES


class Progent(RoleDefense):
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

    roles = ROLES

    def __init__(
        self,
        name: str = "progent",
        *,
        compat: bool = False,
        rules: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        own, mended = read_config_rules(name, rules), NO_FIXES if compat else ALL_FIXES
        self.settings = check_options(ProgentSettings, name, options, fixes=mended, rules=own)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The plain agent behind the gate."""
        settings = self.settings
        updates = [UpdatePolicy(model, settings)] if settings.generate and settings.update else []
        return tool_loop(
            model,
            default_system_message(suite),
            name=f"{model.name}-{self.name}",
            before=[BeginProgentTask(model, settings, suite.name)],
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
        settings = self.settings
        if not settings.enforces_rules:
            return (
                "One agent works through the request and reads every tool result raw, in one conversation."
                " There"
                " are no rules. No call is refused. No policy model is asked. Nothing is taken out of"
                " results."
            )
        return " ".join([*_OPENING, *_describe_standing_rules(settings), *_describe_written_rules(settings), *_describe_update(settings)])

    def prompts(self) -> dict[str, str]:
        """Every text this defense adds, by name."""
        settings = self.settings
        return select_prompts(settings.wording, update=settings.generate and settings.update)


_OPENING = (
    "One agent works through the request and reads every tool result raw, in one conversation.",
    "Before a tool runs, its call is held against rules in code: a tool without a rule is refused.",
    "A refusal takes the result's place, says which rule was broken and repeats the request, and the agent"
    " goes on.",
)


def _describe_standing_rules(settings: ProgentSettings) -> list[str]:
    base = {
        "suite": "Tools that only read the user's own data may always be called, with any arguments.",
        "none": "Every tool, one that only reads too, needs such a rule.",
    }[settings.base_rules]
    own = ["Further rules were written by hand and hold in every task."] if settings.rules else []
    return [base, *own]


def _describe_written_rules(settings: ProgentSettings) -> list[str]:
    if not settings.generate:
        return ["No rules are written for the request."]
    who = "For each request a policy model, which sees request and tools and no result, writes the rest:"
    what = (
        "which tools may be called, and, for arguments that the request settles, what they may be."
        if settings.conditions and settings.wording == "general"
        else "which tools may be called, with any arguments."
    )
    return [f"{who} {what}", *_describe_details(settings)]


def _describe_details(settings: ProgentSettings) -> list[str]:
    if settings.wording in HINTED:
        return [
            "It is told that a task takes two tools, and that a tool named in another style is a stranger."
        ]
    if not settings.conditions:
        return []
    if settings.fixes_defect(ProgentFix.TRY_ALL_ENTRIES):
        return ["Of several rules for a tool any may let a call pass."]
    return ["Of several rules for a tool the first alone counts."]


def _describe_update(settings: ProgentSettings) -> list[str]:
    if not (settings.update and settings.generate):
        return ["The rules do not change during a task."]
    narrow = " New rules take effect only if they allow nothing more." if settings.only_narrow else ""
    return [
        "After each turn the policy model decides, without seeing the results, whether to look at the rules"
        " again; if so it reads the results raw and may write all its rules anew, wider or narrower."
        f"{narrow}"
    ]
