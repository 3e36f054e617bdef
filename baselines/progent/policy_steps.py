"""Where the policy is written and rewritten: before the agent is asked, and after each turn's results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import yaml
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel, ToolSpec, text_of
from agentsys.models.pipeline_elements import LoopState, LoopStep, has_reading_name, tool_specs
from agentsys.models.trace import Tracer, current_tracer, span
from baselines.progent.fixes import ProgentFix
from baselines.progent.gate import PROGENT_SPAN, TASK_POLICY, TaskPolicy
from baselines.progent.narrower import is_narrower
from baselines.progent.policy_model import CalledTool, PolicyModel
from baselines.progent.policy_reply import WrittenPolicy
from baselines.progent.rules import STANDING, PolicyRule, allow_under, merge_rules
from baselines.progent.settings import ProgentSettings
from baselines.tool_results import find_new_results


class BeginProgentTask(LoopStep):
    """Installs the standing rules and has the first policy written."""

    name = "progent_begin"

    def __init__(self, model: ChatModel, settings: ProgentSettings, suite: str) -> None:
        self.model = model
        self.settings = settings
        self.suite = suite
        self._first: tuple[Tracer, str, WrittenPolicy] | None = None
        """The first policy of the case under way: AgentDojo may run a pipeline up to three times."""

    def step(self, at: LoopState) -> LoopState:
        """Begin a run of the task, with nothing left of any run before but the first policy.

        Raises:
            ModelError: If no policy was written.
        """
        tools = tool_specs(at.runtime.functions.values())
        policy = TaskPolicy(self.settings, at.query, self._standing_rules(tools))
        if self.settings.generate:
            policy.written = self._write_first_policy(tools, at.query)
        return replace(at, extra={**at.extra, TASK_POLICY: policy})

    def _standing_rules(self, tools: Sequence[ToolSpec]) -> dict[str, tuple[PolicyRule, ...]]:
        own = {tool: tuple(rules) for tool, rules in self.settings.rules.items()}
        if self.settings.base_rules == "none":
            return own
        base = load_base_rules(self.suite, tools)
        with span(PROGENT_SPAN, "base_rules") as opened:
            opened.decision = {"source": base.source, "always_allowed": list(base.tools)}
        return merge_rules({tool: (allow_under(STANDING),) for tool in base.tools}, own)

    def _write_first_policy(self, tools: Sequence[ToolSpec], query: str) -> WrittenPolicy:
        tracer = current_tracer()
        known = self._first
        if known is None or known[0] is not tracer or known[1] != query:
            written = PolicyModel(self.model, self.settings, tools, query).write_policy()
            self._first = known = (tracer, query, written)
        return known[2]


class UpdatePolicy(LoopStep):
    """Has the policy looked at again after a turn; what is rewritten replaces all of the old rules."""

    name = "progent_update"

    def __init__(self, model: ChatModel, settings: ProgentSettings) -> None:
        self.model = model
        self.settings = settings

    def step(self, at: LoopState) -> LoopState:
        """One decision, and one policy where it is yes.

        Raises:
            ModelError: As `PolicyModel.updated` does.
        """
        policy: TaskPolicy = at.extra[TASK_POLICY]
        calls = self._called_tools(at.messages)
        if calls:
            tools = tool_specs(at.runtime.functions.values())
            asked = PolicyModel(self.model, self.settings, tools, at.query)
            rewritten = asked.update_policy(calls, policy.written)
            if rewritten is not None and self._may_replace(policy.written, rewritten):
                policy.written = rewritten
        return at

    def _called_tools(self, messages: Sequence[ChatMessage]) -> list[CalledTool]:
        only_success = self.settings.fixes_defect(ProgentFix.UPDATE_ON_SUCCESS)
        turn = [messages[place] for place in find_new_results(messages)]
        return [
            CalledTool(message["tool_call"].function, message["tool_call"].args, text_of(message))
            for message in turn
            if message["role"] == "tool" and not (only_success and message["error"])
        ]

    def _may_replace(self, old: WrittenPolicy, new: WrittenPolicy) -> bool:
        if not self.settings.only_narrow:
            return True
        with span(PROGENT_SPAN, "narrower") as opened:
            verdict = is_narrower(
                new,
                old,
                first_only=not self.settings.fixes_defect(ProgentFix.TRY_ALL_ENTRIES),
                unknown_is_narrower=not self.settings.fixes_defect(ProgentFix.PROVE_NARROWER),
            )
            opened.decision = {"narrower": verdict}
        return verdict


_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class BaseRules:
    """Tools that may be called whatever the request is, with any arguments."""

    tools: tuple[str, ...]
    source: str
    """`base_rules/NAME.yaml`, or `generated` where a suite has no file."""


def load_base_rules(suite: str, tools: Sequence[ToolSpec]) -> BaseRules:
    """The rules of a suite; a file of its name counts if it names a tool that is on offer."""
    offered = {tool.name for tool in tools}
    listed = tuple(name for name in _load_listed_tools(suite) if name in offered)
    if listed:
        return BaseRules(listed, f"base_rules/{suite}.yaml")
    least = tuple(tool.name for tool in tools if reads_without_arguments(tool))
    _log_fallback_once(suite, least)
    return BaseRules(least, "generated")


def reads_without_arguments(tool: ToolSpec) -> bool:
    """Whether a tool's name says that it reads, and no argument has to be given: nothing can leak by it."""
    return has_reading_name(tool.name) and not tool.parameters.get("required")


@cache
def _load_listed_tools(suite: str) -> tuple[str, ...]:
    folder = files("baselines.progent") / "base_rules"
    found = next((file for file in folder.iterdir() if file.name == f"{suite}.yaml"), None)
    return () if found is None else tuple(yaml.safe_load(found.read_text(encoding="utf-8")))


@cache
def _log_fallback_once(suite: str, least: tuple[str, ...]) -> None:
    named = ", ".join(least) or "none"
    _LOGGER.warning(
        "Progent has no base rules for the suite %s; generated from its tools' names: %s.", suite, named
    )
