"""The agent: an ordinary tool loop in which everything has a label, and untrusted values have names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import yaml
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from agentsys.base.option_checks import AtLeast1
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of, tool_message
from agentsys.models.pipeline_elements import LoopState, LoopStep, ToolsElement, parse_list_text, tool_specs
from agentsys.models.trace import current_tracer, span
from baselines.fides.call_policy import Argument, CallVerdict, judge
from baselines.fides.own_tools import ANSWER, INSPECT, QUERY, SPECS, TYPES, answer_shape, variable_names
from baselines.fides.prompts import AGAIN, BAD_TYPE, NO_ANSWER, QUARANTINED, REFUSED, UNKNOWN
from baselines.fides.suite_rules import ResultLabels, SuiteRules, generated_rules, written_rules
from baselines.fides.variables import HiddenValues, Hider, harmless, plain
from baselines.flow.label import FROM_USER, FlowLabel, joined
from baselines.flow.label_table import table_for
from baselines.flow.quarantine import NoAnswer, Quarantine

logger = logging.getLogger(__name__)
ROLE = "agent"
CALL = "fides_call"
"""The kind of the spans of verdicts and labels."""


PlannerKind = Literal["fides", "variables", "basic"]
LabelKind = Literal["benchmark", "strict"]
HideKind = Literal["integrity", "both"]


@dataclass(frozen=True)
class FidesSettings:
    """What a variant does. Options as in `Fides`, which explains them."""

    planner: PlannerKind = "fides"
    policies: bool = True
    labels: LabelKind = "benchmark"
    hide: HideKind = "integrity"
    max_rounds: AtLeast1 = 15
    query_attempts: AtLeast1 = 2


class FidesAgent(LoopStep):
    """The whole agent as one element; everything it remembers of a task lives in one call of `query`."""

    name = "fides_agent"

    def __init__(self, model: ChatModel, settings: FidesSettings, suite: str) -> None:
        self.model, self.settings, self.suite = model, settings, suite

    def step(self, at: LoopState) -> LoopState:
        """Turn by turn, until a reply has no calls or the rounds are used up.

        Raises:
            ModelError: If a model gave no reply.
        """
        labels = labels_for(self.suite, at.runtime, at.env, self.settings)
        task = FidesTask(self.model, self.settings, at.runtime, at.env, labels)
        task.messages = [_harmless_request(one, self.settings) for one in at.messages]
        reply = task.ask()
        for _ in range(self.settings.max_rounds):
            if not reply["tool_calls"]:
                break
            for call in reply["tool_calls"]:
                task.messages.append(task.result(call))
            reply = task.ask()
        return replace(at, messages=task.ended(reply))


def labels_for(
    suite: str, runtime: FunctionsRuntime, environment: TaskEnvironment, settings: FidesSettings
) -> ResultLabels:
    """The labels of one case; said once where the suite has no file."""
    rules = written_rules(suite)
    if rules is None:
        _say_once(suite)
        rules = generated_rules(runtime.functions)
    return ResultLabels(rules, table_for(suite, environment), environment, settings.labels == "strict")


@cache
def _say_once(suite: str) -> None:
    logger.warning(
        "FIDES has no labels for suite '%s': every result is untrusted as a whole and for the user alone, and"
        " tools whose name does not begin with a reading verb need policy P1.",
        suite,
    )


@dataclass
class FidesTask:
    """One task on its way."""

    model: ChatModel
    settings: FidesSettings
    runtime: FunctionsRuntime
    environment: TaskEnvironment
    labels: ResultLabels
    messages: list[ChatMessage] = field(default_factory=list)
    label: FlowLabel = FROM_USER
    """The label of the conversation; it never decreases."""
    store: HiddenValues = field(default_factory=HiddenValues)

    @property
    def rules(self) -> SuiteRules:
        """The suite's rules."""
        return self.labels.rules

    def ask(self) -> ChatAssistantMessage:
        """The planner's next reply."""
        own = SPECS if self.settings.planner == "fides" else ()
        tools = [*tool_specs(self.runtime.functions.values()), *own]
        reply = self.model.complete(ChatRequest(self.messages, tools, ROLE)).message
        self.messages.append(reply)
        return reply

    def result(self, call: FunctionCall) -> ChatToolResultMessage:
        """What the planner reads of one of its calls."""
        if self.settings.planner == "fides" and call.function == QUERY:
            return tool_message(call, self._query(call.args))
        if self.settings.planner == "fides" and call.function == INSPECT:
            return tool_message(call, self._inspect(call.args))
        arguments = {
            name: Argument(self._expanded(value), self._label_of(value)) for name, value in call.args.items()
        }
        with span(CALL, call.function) as opened:
            opened.decision = {"trusted": self.label.trusted, "public": self.label.public}
            if self.settings.policies and call.function in self.runtime.functions:
                verdict = judge(self.rules, call.function, arguments, self.label, self.environment)
                opened.decision |= {"allow": verdict.allow, "rule": verdict.rule, "reason": verdict.reason}
                if not verdict.allow:
                    return self._refused(call, arguments, verdict)
            value, error = self._run(call, {name: argument.value for name, argument in arguments.items()})
        if call.function not in self.runtime.functions:
            return tool_message(call, "", error)
        known = joined([self.label, *(argument.label for argument in arguments.values())])
        if error is not None:
            return tool_message(call, "", self._error(call.function, error, known))
        return tool_message(call, self._shown(call.function, value, known))

    def _refused(
        self, call: FunctionCall, arguments: Mapping[str, Argument], verdict: CallVerdict
    ) -> ChatToolResultMessage:
        plain_arguments = {name: plain(argument.value) for name, argument in arguments.items()}
        current_tracer().tool_refused(call.function, plain_arguments, verdict.reason)
        return tool_message(call, "", REFUSED.format(tool=call.function, reason=verdict.reason))

    def _run(self, call: FunctionCall, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
        """The value and error of a call, by AgentDojo's own executor."""
        values: list[Any] = []
        made = FunctionCall(function=call.function, args=dict(arguments), id=call.id)

        def keep(value: Any) -> str:
            values.append(value)
            return ""

        executor = ToolsElement(keep)
        asked = [assistant(None, [made])]
        _, _, _, messages, _ = executor.query("", self.runtime, self.environment, asked)
        return (values[0] if values else None), messages[-1]["error"]

    def _expanded(self, value: Any) -> Any:
        read = parse_list_text(value) if isinstance(value, str) else value
        return value if self.settings.planner == "basic" else self.store.expanded(read)

    def _label_of(self, value: Any) -> FlowLabel:
        return self.label if self.settings.planner == "basic" else self.store.label(value, self.label)

    def _shown(self, tool: str, value: Any, known: FlowLabel) -> str:
        """The text of a result; what may not be read has become variables."""
        hider = Hider(
            self.store,
            f"{tool}-result-{self.store.number()}",
            lambda record, name: self.labels.of_field(tool, record, name) | known,
            self._hides,
        )
        shape = hider.shape(value)
        self.label = joined([self.label, *hider.shown])
        return str(tool_result_to_str(value)) if self.settings.planner == "basic" else written(shape)

    def _error(self, tool: str, error: str, known: FlowLabel) -> str:
        label = self.labels.of_error(tool) | known
        if self._hides(label):
            name = self.store.keep(f"{tool}-result-{self.store.number()}.error", error, label)
            return f"The tool failed; why stands in {name}"
        self.label = self.label | label
        return error if self.settings.planner == "basic" else str(harmless(error))

    def _hides(self, label: FlowLabel) -> bool:
        if self.settings.planner != "fides":
            return self.settings.planner == "variables"
        less_trusted = self.label.trusted and not label.trusted
        return less_trusted or (self.settings.hide == "both" and not label.flows_to(self.label))

    def _query(self, args: Mapping[str, Any]) -> str:
        """Ask the quarantined model; its answer is a variable."""
        shape = answer_shape(args)
        if shape is None:
            return BAD_TYPE.format(known=", ".join(TYPES))
        names = variable_names(args)
        variables = [self.store.find(name) for name in names]
        if None in variables:
            return UNKNOWN
        values = {name: variable.raw for name, variable in zip(names, variables, strict=True) if variable}
        question = f"{self.store.expanded(args.get('query', ''))}\n\n{written(values)}"
        quarantine = Quarantine(self.model, QUARANTINED, AGAIN, self.settings.query_attempts)
        try:
            answer = getattr(quarantine.ask(question, shape), ANSWER)
        except NoAnswer:
            return NO_ANSWER
        label = joined([self._label_of(args.get("query", "")), *(v.label for v in variables if v)])
        return self.store.keep(f"{QUERY}-result-{self.store.number()}", plain(answer), label)

    def _inspect(self, args: Mapping[str, Any]) -> str:
        """Show values: the conversation is from now on as untrusted as they are."""
        names = variable_names(args)
        variables = [self.store.find(name) for name in names]
        if None in variables:
            return UNKNOWN
        self.label = joined([self.label, *(variable.label for variable in variables if variable)])
        values = {harmless(n).strip("# "): v.raw for n, v in zip(names, variables, strict=True) if v}
        return written(harmless(values))

    def ended(self, reply: ChatAssistantMessage) -> list[ChatMessage]:
        """The conversation with the final text as the user reads it."""
        if self.settings.planner == "basic" or not self.store.named(text_of(reply)):
            return self.messages
        with span("fides_answer") as opened:
            opened.decision = {"unexpanded": text_of(reply)}
        # A single name would expand to the value itself: put something around it.
        text = str(self.store.expanded(f"{text_of(reply)}\n")).rstrip("\n")
        return [*self.messages[:-1], assistant(text, reply["tool_calls"])]


def written(value: Any) -> str:
    """Plain data as a model reads it: as AgentDojo writes results."""
    return str(yaml.safe_dump(value)).strip() if isinstance(value, dict | list) else str(value)


def _harmless_request(message: ChatMessage, settings: FidesSettings) -> ChatMessage:
    """A request in which nothing looks like a variable."""
    if settings.planner == "basic" or message["role"] != "user":
        return message
    blocks = [text_content_block_from_string(str(harmless(text_of(message))))]
    return {"role": "user", "content": blocks}
