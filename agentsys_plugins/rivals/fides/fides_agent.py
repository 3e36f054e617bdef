"""`FidesAgent`: an agent whose messages carry labels, and that reads variables for untrusted values."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
)

from agentsys.base.option_checks import AtLeast1
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of, tool_message, user
from agentsys.models.loose_json import map_json_text
from agentsys.models.pipeline_elements import (
    ASKED_AGAIN,
    LoopState,
    LoopStep,
    ToolsElement,
    parse_list_text,
    tool_specs,
    write_tool_value,
)
from agentsys.models.text_tools import explain_unread_call
from agentsys.models.trace import get_current_tracer, span
from agentsys.models.untrusted import ForeignFunction, Reader, ToolError, ToolOutcome, Untrusted, read_error
from agentsys_plugins.rivals.fides.fides_policy import (
    CallArgument,
    ResultLabels,
    generate_rules,
    judge_call,
    load_written_rules,
)
from agentsys_plugins.rivals.fides.hidden_values import (
    HiddenValues,
    ResultHider,
    StoredVariable,
    convert_result_to_plain_data,
    neutralize_names,
)
from agentsys_plugins.rivals.fides.prompts import (
    ANSWER,
    ANSWER_TYPES,
    BAD_TYPE,
    NO_ANSWER,
    QUARANTINED,
    QUERY,
    REFUSED,
    UNKNOWN,
    build_answer_shape,
    name_own_tools,
    read_variable_names,
)
from baselines.defense_bases import warn_once
from baselines.flow.labelled_values import (
    FROM_USER,
    FlowLabel,
    build_label_table,
    join_labels,
    label_from_tool,
)
from baselines.flow.quarantined_model import ask_for_shape, make_query_contract

logger = logging.getLogger(__name__)
ROLE = "agent"
STORE = "fides_values"
"""The extra argument with a request's variables: an answer that is asked for again may name them."""
CALL = "fides_call"
"""The kind of the spans of verdicts and labels."""


QUERY_CONTRACT = make_query_contract(QUARANTINED, {ANSWER: "Middlemarch"})
"""The quarantined model's answer."""
PlannerKind = Literal["fides", "variables", "basic"]
LabelKind = Literal["benchmark", "strict"]
HideKind = Literal["integrity", "both"]


@dataclass(frozen=True)
class FidesSettings:
    """Options of a variant; see `Fides`."""

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
        """Turn by turn, until a reply has no calls or the rounds are used up."""
        labels = load_result_labels(self.suite, at.runtime, at.env, self.settings)
        task = FidesTask(self.model, self.settings, at.runtime, at.env, labels, list(at.messages))
        if at.extra.get(ASKED_AGAIN) and isinstance(kept := at.extra.get(STORE), HiddenValues):
            task.store = kept
        if self.settings.planner != "basic":
            task.messages = [
                user(str(neutralize_names(text_of(message)))) if message["role"] == "user" else message
                for message in at.messages
            ]
        reply = task.ask_planner()
        for _ in range(self.settings.max_rounds):
            if not reply["tool_calls"]:
                break
            for call in reply["tool_calls"]:
                task.messages.append(task.answer_call(call))
            reply = task.ask_planner()
        return replace(
            at, messages=task.build_final_conversation(reply), extra={**at.extra, STORE: task.store}
        )


def load_result_labels(
    suite: str, runtime: FunctionsRuntime, environment: TaskEnvironment, settings: FidesSettings
) -> ResultLabels:
    """Load the labels of one case."""
    rules = load_written_rules(suite)
    if rules is None:
        words = (
            "FIDES has no labels for suite '%s': every result is untrusted as a whole and for the user alone,"
            " and tools whose name does not begin with a reading verb need policy P1."
        )
        warn_once(logger, words, suite)
        rules = generate_rules(runtime.functions)
    table = build_label_table(suite, environment)
    return ResultLabels(rules, table, environment, settings.labels == "strict")


@dataclass
class FidesTask:
    """The state of one running task."""

    model: ChatModel
    settings: FidesSettings
    runtime: FunctionsRuntime
    environment: TaskEnvironment
    labels: ResultLabels
    messages: list[ChatMessage]
    label: FlowLabel = FROM_USER
    """The label of the conversation; it never decreases."""
    store: HiddenValues = field(default_factory=HiddenValues)

    def ask_planner(self) -> ChatAssistantMessage:
        """Ask for the planner's next reply."""
        own = name_own_tools(self.runtime.functions) if self.settings.planner == "fides" else ()
        tools = [*tool_specs(self.runtime.functions.values()), *own]
        reply = self.model.complete(ChatRequest(self.messages, tools, ROLE)).message
        self.messages.append(reply)
        return reply

    def answer_call(self, call: FunctionCall) -> ChatToolResultMessage:
        """Answer one of the planner's calls."""
        query, inspect = (tool.name for tool in name_own_tools(self.runtime.functions))
        own = {query: self._query_values, inspect: self._inspect_values}
        if self.settings.planner == "fides" and call.function in own:
            return tool_message(call, own[call.function](call.args))
        arguments = {
            name: CallArgument(self._expand_names(value), self._label_argument(value))
            for name, value in call.args.items()
        }
        with span(CALL, call.function) as opened:
            opened.decision = {"trusted": self.label.is_trusted, "public": self.label.is_public}
            if self.settings.policies and call.function in self.runtime.functions:
                verdict = judge_call(
                    self.labels.rules, call.function, arguments, self.label, self.environment
                )
                opened.decision |= {"allow": verdict.allow, "rule": verdict.rule, "reason": verdict.reason}
                if not verdict.allow:
                    plain = {
                        name: convert_result_to_plain_data(given.value) for name, given in arguments.items()
                    }
                    get_current_tracer().note_refused_call(call.function, plain, verdict.reason)
                    return tool_message(call, "", REFUSED.format(tool=call.function, reason=verdict.reason))
            if call.function not in self.runtime.functions:
                unread = explain_unread_call(call) or f"Invalid tool {call.function} provided."
                return tool_message(call, "", unread)
            outcome = self._run_tool(call, {name: given.value for name, given in arguments.items()})
        known = join_labels([self.label, *(argument.label for argument in arguments.values())])
        if outcome.error is not None:
            return tool_message(call, "", self._show_error(call.function, outcome.error, known))
        return tool_message(call, self._show_result(call.function, outcome.value, known))

    def _run_tool(self, call: FunctionCall, arguments: Mapping[str, Any]) -> ToolOutcome:
        values: list[Any] = []

        def keep(value: Any) -> str:
            values.append(value)
            return ""

        executor = ToolsElement(keep)
        expanded = FunctionCall(function=call.function, args=dict(arguments), id=call.id)
        messages = executor.query("", self.runtime, self.environment, [assistant(None, [expanded])])[3]
        error = messages[-1]["error"]
        read = None if error is None else read_error(error, self.runtime.functions[call.function])
        return ToolOutcome(Untrusted(values[0] if values else None), read)

    def _expand_names(self, value: Any) -> Any:
        read = parse_list_text(value) if isinstance(value, str) else value
        return value if self.settings.planner == "basic" else self.store.expand_names(read)

    def _label_argument(self, value: Any) -> FlowLabel:
        return (
            self.label if self.settings.planner == "basic" else self.store.label_argument(value, self.label)
        )

    def _show_result(self, tool: str, foreign: Untrusted[Any], known: FlowLabel) -> str:
        """Format a result, with variables in place of values that may not be read."""
        hider = ResultHider(
            self.store,
            self.store.name_result(tool),
            lambda record, name: self.labels.label_field(tool, record, name) | known,
            self._must_hide,
        )
        shape = hider.hide_values(foreign.open_for(Reader.GATE))
        self.label = join_labels([self.label, *hider.shown])
        if self.settings.planner == "basic":
            return write_tool_value(_show(foreign))
        return format_plain_data(shape)

    def _show_error(self, tool: str, error: ToolError, known: FlowLabel) -> str:
        foreign = isinstance(self.runtime.functions[tool], ForeignFunction)
        label = (label_from_tool(tool) if foreign else self.labels.label_error(tool)) | known
        if self._must_hide(label):
            name = self.store.store_value(f"{self.store.name_result(tool)}.error", error.text, label)
            return f"The tool failed; why stands in {name}"
        self.label = self.label | label
        text = _show(error.text)
        return text if self.settings.planner == "basic" else str(neutralize_names(text))

    def _must_hide(self, label: FlowLabel) -> bool:
        if self.settings.planner != "fides":
            return self.settings.planner == "variables"
        less_trusted = self.label.is_trusted and not label.is_trusted
        return less_trusted or (self.settings.hide == "both" and not label.flows_to(self.label))

    def _query_values(self, args: Mapping[str, Any]) -> str:
        """Ask the quarantined model; its answer is a variable."""
        shape = build_answer_shape(args)
        if shape is None:
            return BAD_TYPE.format(known=", ".join(ANSWER_TYPES))
        variables = self._find_variables(args)
        if variables is None:
            return UNKNOWN
        values = {name: variable.raw.open_for(Reader.QUARANTINE) for name, variable in variables.items()}
        question = f"{self.store.expand_names(args.get('query', ''))}\n\n{format_plain_data(values)}"
        typed = ask_for_shape(self.model, QUERY_CONTRACT, question, shape, self.settings.query_attempts)
        if typed is None:
            return NO_ANSWER
        answer = getattr(typed, ANSWER)
        asked = self._label_argument(args.get("query", ""))
        label = join_labels([asked, *(variable.label for variable in variables.values())])
        name = self.store.name_result(QUERY)
        return self.store.store_value(name, Untrusted(convert_result_to_plain_data(answer)), label)

    def _find_variables(self, args: Mapping[str, Any]) -> dict[str, StoredVariable] | None:
        """Find the variables that a call names; None if one of them is unknown."""
        stored = self.store.variables
        variables = {name: stored.get(name.strip().strip("#")) for name in read_variable_names(args)}
        known = {name: variable for name, variable in variables.items() if variable is not None}
        return known if len(known) == len(variables) else None

    def _inspect_values(self, args: Mapping[str, Any]) -> str:
        """Return the values of the variables in plain text, and add their labels to the conversation's."""
        variables = self._find_variables(args)
        if variables is None:
            return UNKNOWN
        self.label = join_labels([self.label, *(variable.label for variable in variables.values())])
        values = {neutralize_names(name).strip("# "): _show(hidden.raw) for name, hidden in variables.items()}
        return format_plain_data(neutralize_names(values))

    def build_final_conversation(self, reply: ChatAssistantMessage) -> list[ChatMessage]:
        """Return the conversation with the final text as the user reads it."""
        if self.settings.planner == "basic" or not self.store.find_named(text_of(reply)):
            return self.messages
        with span("fides_answer") as opened:
            opened.decision = {"unexpanded": text_of(reply)}
        in_json = map_json_text(text_of(reply), self.store.expand_names)
        # A single name would expand to the value itself: put something around it.
        text = in_json or str(self.store.expand_names(f"{text_of(reply)}\n")).rstrip("\n")
        return [*self.messages[:-1], assistant(text, reply["tool_calls"])]


def _show(foreign: Untrusted[Any]) -> Any:
    """Unwrap a tool's data for the planner; the conversation must already have the data's label."""
    return foreign.open_for(Reader.AGENT)


def format_plain_data(value: Any) -> str:
    """Write plain data as AgentDojo writes results."""
    return str(yaml.safe_dump(value)).strip() if isinstance(value, dict | list) else str(value)
