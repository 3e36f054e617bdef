"""The gate: every call of a turn is held against the rules before its tool runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from pydantic import ValidationError

from agentsys.models.pipeline_elements import LoopState, LoopStep, ToolsElement
from agentsys.models.trace import current_tracer, span
from baselines.progent.fixes import ProgentFix
from baselines.progent.policy_reply import WrittenPolicy
from baselines.progent.prompts import REFUSED, STOPPED
from baselines.progent.rules import RefusalFallback, PolicyDecision, PolicyRule, RuleTable, decide_call, merge_rules
from baselines.progent.settings import ProgentSettings

PROGENT_SPAN = "progent"
TASK_POLICY = "progent_policy"
"""Where the rules of a task travel, in the pipeline's extra arguments."""


class ProgentStop(Exception):
    """A rule ends the task."""


class ProgentRefusal(Exception):
    """A refused call, where the caller wants errors raised."""


@dataclass
class TaskPolicy:
    """The rules of one run of one task."""

    settings: ProgentSettings
    query: str
    standing: dict[str, tuple[PolicyRule, ...]]
    """Those of the suite and of the config; they change only by a rule's own `updates`."""
    written: WrittenPolicy = ()
    """Those of the policy model."""

    @property
    def rules(self) -> RuleTable | None:
        """All rules; None where nothing is enforced."""
        if not self.settings.enforces_rules:
            return None
        generated: dict[str, tuple[PolicyRule, ...]] = {}
        for entry in self.written:
            generated[entry.tool] = (*generated.get(entry.tool, ()), entry.as_rule())
        return merge_rules(self.standing, generated)

    def decide_on_call(self, tool: str, args: Mapping[str, Any]) -> PolicyDecision:
        """Hold one call against the rules; a rule that lets it pass may change the standing ones."""
        first_only = not self.settings.fixes_defect(ProgentFix.TRY_ALL_ENTRIES)
        decision = decide_call(self.rules, tool, args, first_only=first_only)
        if decision.allowed and decision.by is not None:
            self.standing |= {name: tuple(rules) for name, rules in decision.by.updates.items()}
        return decision


class GatedRuntime(FunctionsRuntime):  # type: ignore[misc]
    """A runtime that runs only what the rules allow; a call nested in another's arguments is one, too."""

    def __init__(self, inner: FunctionsRuntime, policy: TaskPolicy) -> None:
        super().__init__(list(inner.functions.values()))
        self.inner = inner
        self.policy = policy

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool if the rules allow it; else nothing, and an error that says why.

        Raises:
            ProgentStop: If a rule ends the task.
            ProgentRefusal: If the call is refused and errors are to be raised.
            Exception: What the inner runtime raises, unchanged.
        """
        try:
            resolved = self._execute_nested_calls(env, kwargs)
        except ProgentStop:
            raise
        except Exception as error:
            if raise_on_error:
                raise
            return "", f"{type(error).__name__}: {error}"
        args = self._prepare_arguments(function, resolved)
        if args is None:  # What a tool cannot be called with: it says so itself.
            return self._run_if_allowed(env, function, resolved, raise_on_error)
        decision = self.policy.decide_on_call(function, args)
        if decision.allowed:
            _record_allowed(function, decision)
            return self._run_if_allowed(env, function, resolved, raise_on_error)
        current_tracer().tool_refused(function, args, decision.cause)
        if decision.fallback is RefusalFallback.STOP:
            raise ProgentStop(decision.cause)
        refusal = REFUSED.format(cause=decision.cause, query=self.policy.query)
        if raise_on_error:
            raise ProgentRefusal(refusal)
        return "", refusal

    def _run_if_allowed(
        self, env: TaskEnvironment | None, function: str, args: Mapping[str, Any], raise_on_error: bool
    ) -> tuple[Any, str | None]:
        result: tuple[Any, str | None] = self.inner.run_function(env, function, args, raise_on_error)
        return result

    def _prepare_arguments(self, function: str, args: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments as the tool will get them, JSON-ready; None if it will not take them.

        Validated first: `"500"` for a number is 500 to the tool, and a schema's `maximum` passes over texts.
        """
        tool: Function | None = self.functions.get(function)
        if tool is None:
            return None
        try:
            valid = tool.parameters.model_validate(dict(args))
        except ValidationError:
            return None
        everything: dict[str, Any] = valid.model_dump(mode="json", fallback=str)
        if not self.policy.settings.fixes_defect(ProgentFix.CHECK_SUPPLIED_ARGUMENTS):
            return everything
        return {
            name: value
            for name, value in everything.items()
            if name in valid.model_fields_set and not _is_omitted_null(tool, name, value)
        }


def _is_omitted_null(tool: Function, name: str, value: Any) -> bool:
    """Whether a null stands where the tool would put one itself: models write it for "not given"."""
    field = tool.parameters.model_fields.get(name)
    return value is None and field is not None and not field.is_required() and field.default is None


def _record_allowed(function: str, decision: PolicyDecision) -> None:
    with span(PROGENT_SPAN, function) as opened:
        opened.decision = {"allow": True, "priority": decision.by.priority if decision.by else None}


class GatedTools(LoopStep):
    """AgentDojo's executor behind the gate: calls run or are refused in the order they were made."""

    name = "progent_gate"
    runs_tools = True

    def __init__(self) -> None:
        self.executor = ToolsElement()

    def step(self, at: LoopState) -> LoopState:
        """Run the latest message's calls.

        Raises:
            AbortAgentError: If a rule ends the task; AgentDojo scores what was done so far.
        """
        gated = GatedRuntime(at.runtime, at.extra[TASK_POLICY])
        try:
            return replace(at, messages=self.executor.query(at.query, gated, at.env, at.messages)[3])
        except ProgentStop:
            raise AbortAgentError(STOPPED, list(at.messages), at.env) from None
