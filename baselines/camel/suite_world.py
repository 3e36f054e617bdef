"""`SuiteWorld`: a suite's tools as programs meet them: judged, run, labelled, and written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatToolResultMessage

from agentsys.models.chat import tool_message
from agentsys.models.trace import span
from baselines.camel.language.failure import CallDenied, ProgramError
from baselines.camel.policy import CamelJudge
from baselines.camel.reader import AnswerSource, query_assistant
from baselines.camel.signatures import QUERY
from baselines.flow.label import FROM_USER, FlowLabel
from baselines.flow.label_table import LabelTable, to_value
from baselines.flow.values import Value, to_native

POLICY = "camel_policy"
"""The kind of the spans of verdicts."""


@dataclass
class SuiteWorld:
    """What programs of one task can reach.

    Calls go through the runtime, so a run books them; `messages` holds them for the conversation's record.
    """

    runtime: FunctionsRuntime
    environment: TaskEnvironment
    table: LabelTable
    judge: CamelJudge | None
    """None: no policies."""
    answers: AnswerSource
    messages: list[ChatToolResultMessage] = field(default_factory=list)
    """A result for each call that ran since the list was emptied."""

    def call(self, tool: str, arguments: Mapping[str, Value], control: FlowLabel) -> Value:
        """Run a tool, or ask the quarantined model.

        Raises:
            CallDenied: If a policy does not allow it; nothing has happened then.
            ProgramError: If it failed.
            ModelError: If the quarantined model gave no reply.
        """
        if tool == QUERY:
            return query_assistant(self.answers, arguments)
        function = self.runtime.functions[tool]
        if self.judge is not None:
            self._check_policy(function, arguments, control, self.judge)
        plain = {name: to_native(value) for name, value in arguments.items()}
        made = FunctionCall(function=tool, args=plain, id=f"call_{len(self.messages)}")
        # Tools may change the lists they are given, and the record shows what they were given.
        result, error = self.runtime.run_function(self.environment, tool, made.model_copy(deep=True).args)
        self.messages.append(
            tool_message(made, "" if error is not None else tool_result_to_str(result), error)
        )
        if error is not None:
            kind, _, text = error.partition(": ")
            raise ProgramError(kind if kind.isidentifier() else "ToolError", text)
        return self.table.label_result(tool, result)

    def _check_policy(
        self, function: Function, arguments: Mapping[str, Value], control: FlowLabel, judge: CamelJudge
    ) -> None:
        filled = arguments if judge.as_published else {**default_arguments(function), **arguments}
        if any(name not in filled for name in required_arguments(function)):
            return  # The tool will say what is missing, and do nothing.
        with span(POLICY, function.name) as opened:
            reason = judge.find_denial(function.name, filled, control, self.environment)
            opened.decision = {"allow": reason is None, "reason": reason or ""}
            if judge.policies.generated:
                opened.decision["generated"] = True
        if reason is not None:
            raise CallDenied(function.name, reason)


def default_arguments(function: Function) -> dict[str, Value]:
    """Arguments that may be left out, with the values they then have."""
    fields = function.parameters.model_fields.items()
    return {name: to_value(field.default, FROM_USER) for name, field in fields if not field.is_required()}


def required_arguments(function: Function) -> list[str]:
    """Arguments that may not be left out."""
    return [name for name, field in function.parameters.model_fields.items() if field.is_required()]
