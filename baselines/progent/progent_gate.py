"""The gate before the tools: calls run only as the rules allow. Steps around it write and update the rules.

`GatedRuntime` decides on each call; `BeginProgentTask` installs the first policy; `UpdatePolicy` rewrites it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage
from pydantic import ValidationError

from agentsys.models.chat import ChatModel, ToolSpec, text_of
from agentsys.models.pipeline_elements import LoopState, LoopStep, ToolsElement, has_reading_name, tool_specs
from agentsys.models.trace import Tracer, get_current_tracer, span
from baselines.defense_bases import warn_once
from baselines.progent import progent_rules
from baselines.progent.policy_model import CalledTool, PolicyModel, WrittenPolicy, is_narrower
from baselines.progent.prompts import REFUSED, STOPPED
from baselines.tool_boundary.result_rewriter import find_new_results

PROGENT_SPAN = "progent"
TASK_POLICY = "progent_policy"
"""Key of a task's rules in the pipeline's extra arguments."""


class ProgentStop(Exception):
    """A rule ends the task."""


class ProgentRefusal(Exception):
    """A refused call, where the caller wants errors raised."""


@dataclass
class TaskPolicy:
    """The rules of one run of one task."""

    settings: progent_rules.ProgentSettings
    query: str
    standing: progent_rules.RuleTable
    """Those of the suite and of the config; they change only by a rule's own `updates`."""
    written: WrittenPolicy = ()
    """Those of the policy model."""

    @property
    def rules(self) -> progent_rules.RuleTable | None:
        """All rules; None if nothing is enforced."""
        if not self.settings.enforces_rules:
            return None
        rules = self.standing
        for entry in self.written:
            rules = progent_rules.merge_rules(rules, {entry.tool: (entry.as_rule(),)})
        return rules

    def decide_on_call(self, tool: str, args: Mapping[str, Any]) -> progent_rules.PolicyDecision:
        """Hold one call against the rules; a rule that lets it pass may change the standing ones."""
        # Reference: a call passes by the first rule that the policy model wrote for its tool, or not at all.
        decision = progent_rules.decide_call(self.rules, tool, args, first_only=self.settings.compat)
        if decision.allowed and decision.by is not None:
            self.standing = {**self.standing, **decision.by.updates}
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
        """Run a tool if the rules allow it; else nothing, and an error that says why."""
        try:
            resolved = self._execute_nested_calls(env, kwargs)
        except ProgentStop:
            raise
        except Exception as error:
            if raise_on_error:
                raise
            return "", f"{type(error).__name__}: {error}"
        args = self._prepare_arguments(function, resolved)
        if args is not None:  # With what else it cannot be called a tool says itself.
            decision = self.policy.decide_on_call(function, args)
            if not decision.allowed:
                get_current_tracer().note_refused_call(function, args, decision.cause)
                if decision.fallback is progent_rules.RefusalFallback.STOP:
                    raise ProgentStop(decision.cause)
                refusal = REFUSED.format(cause=decision.cause, query=self.policy.query)
                if raise_on_error:
                    raise ProgentRefusal(refusal)
                return "", refusal
            with span(PROGENT_SPAN, function) as opened:
                opened.decision = {"allow": True, "priority": decision.by.priority if decision.by else None}
        result: tuple[Any, str | None] = self.inner.run_function(env, function, resolved, raise_on_error)
        return result

    def _prepare_arguments(self, function: str, args: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments as passed to the tool, JSON-ready; None if it would reject them.

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
        # Reference: of an argument that was left out the default is checked, and null fails.
        if self.policy.settings.compat:
            return everything
        # Null where the tool would put it itself, too: models write it for "not given".
        nulls = {name for name, of in tool.parameters.model_fields.items() if of.default is None}
        given = {name: everything[name] for name in everything if name in valid.model_fields_set}
        return {name: value for name, value in given.items() if value is not None or name not in nulls}


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


class BeginProgentTask(LoopStep):
    """Installs the standing rules and has the first policy written."""

    name = "progent_begin"

    def __init__(self, model: ChatModel, settings: progent_rules.ProgentSettings, suite: str) -> None:
        self.model = model
        self.settings = settings
        self.suite = suite
        self._first: tuple[Tracer, str, WrittenPolicy] | None = None
        """The first policy of the case under way: AgentDojo may run a pipeline up to three times."""

    def step(self, at: LoopState) -> LoopState:
        """Begin a run of the task, with nothing left of any run before but the first policy."""
        tools = tool_specs(at.runtime.functions.values())
        policy = TaskPolicy(self.settings, at.query, self._load_standing_rules(tools))
        if self.settings.generate:
            policy.written = self._write_first_policy(tools, at.query)
        return replace(at, extra={**at.extra, TASK_POLICY: policy})

    def _load_standing_rules(self, tools: Sequence[ToolSpec]) -> progent_rules.RuleTable:
        if self.settings.base_rules == "none":
            return self.settings.rules
        allowed, source = load_base_rules(self.suite, tools)
        with span(PROGENT_SPAN, "base_rules") as opened:
            opened.decision = {"source": source, "always_allowed": list(allowed)}
        return progent_rules.merge_rules(
            {tool: (progent_rules.allow_under(progent_rules.STANDING),) for tool in allowed},
            self.settings.rules,
        )

    def _write_first_policy(self, tools: Sequence[ToolSpec], query: str) -> WrittenPolicy:
        tracer = get_current_tracer()
        if self._first is None or self._first[0] is not tracer or self._first[1] != query:
            written = PolicyModel(self.model, self.settings, tools, query).write_policy()
            self._first = (tracer, query, written)
        return self._first[2]


class UpdatePolicy(LoopStep):
    """Has the policy looked at again after a turn; what is rewritten replaces all of the old rules."""

    name = "progent_update"

    def __init__(self, model: ChatModel, settings: progent_rules.ProgentSettings) -> None:
        self.model = model
        self.settings = settings

    def step(self, at: LoopState) -> LoopState:
        """Ask for one decision, and for one policy if it is yes."""
        policy: TaskPolicy = at.extra[TASK_POLICY]
        calls = self._list_called_tools(at.messages)
        if calls:
            tools = tool_specs(at.runtime.functions.values())
            asked = PolicyModel(self.model, self.settings, tools, at.query)
            new = asked.update_policy(calls, policy.written)
            if new is not None and self.settings.only_narrow:
                with span(PROGENT_SPAN, "narrower") as opened:
                    narrower = is_narrower(new, policy.written, first_only=self.settings.compat)
                    opened.decision = {"narrower": narrower}
                new = new if narrower else None
            policy.written = policy.written if new is None else new
        return at

    def _list_called_tools(self, messages: Sequence[ChatMessage]) -> list[CalledTool]:
        turn = [messages[index] for index in find_new_results(messages)]
        # Reference: refused and failed calls start an update too, with empty results.
        return [
            CalledTool(message["tool_call"].function, message["tool_call"].args, text_of(message))
            for message in turn
            if message["role"] == "tool" and (self.settings.compat or not message["error"])
        ]


_LOGGER = logging.getLogger(__name__)


def load_base_rules(suite: str, tools: Sequence[ToolSpec]) -> tuple[tuple[str, ...], str]:
    """Load the tools of a suite that may always be called, with any arguments.

    Returns:
        Their names, and where they come from: a file of the suite's name counts if it names a tool that is on
        offer; else they are `generated`.
    """
    offered = {tool.name for tool in tools}
    listed = tuple(name for name in _load_listed_tools(suite) if name in offered)
    if listed:
        return listed, f"base_rules/{suite}.yaml"
    # What reads by its name, where no argument has to be given: nothing can leak by it.
    least = tuple(t.name for t in tools if has_reading_name(t.name) and not t.parameters.get("required"))
    words = "Progent has no base rules for the suite %s; generated from its tools' names: %s."
    warn_once(_LOGGER, words, suite, ", ".join(least) or "none")
    return least, "generated"


@cache
def _load_listed_tools(suite: str) -> tuple[str, ...]:
    for file in (files("baselines.progent") / "base_rules").iterdir():
        if file.name == f"{suite}.yaml":
            return tuple(yaml.safe_load(file.read_text(encoding="utf-8")))
    return ()
