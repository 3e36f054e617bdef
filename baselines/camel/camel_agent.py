"""`CamelAgent`: a planner writes programs until one has run to its end."""

from __future__ import annotations

import ast
import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.base.option_checks import AtLeast1
from agentsys.models.chat import ChatModel, ChatRequest, assistant, system, text_of, user
from agentsys.models.pipeline_elements import LoopState, LoopStep
from agentsys.models.trace import span
from baselines.camel.camel_policy import CamelJudge, CamelPolicies, generate_policies, load_written_policies
from baselines.camel.language.functions import CLASSES, PROVIDED_FUNCTIONS, build_class_values
from baselines.camel.language.interpreter import find_program, run_program
from baselines.camel.language.machine import CallDenied, Machine, ProgramError
from baselines.camel.language.members import list_methods
from baselines.camel.language.operators import to_str
from baselines.camel.prompts import DENIED, FAILED, NO_CODE, PLANNER, REDACTED
from baselines.camel.suite_world import (
    QUERY,
    AnswerSource,
    RecordedAnswers,
    SuiteWorld,
    build_model_answers,
    build_tool_values,
    find_result_types,
    write_class,
    write_signature,
)
from baselines.flow.label_table import build_label_table
from baselines.flow.labelled_values import Scalar, Value, literal_value

logger = logging.getLogger(__name__)
ROLE = "agent"
PROGRAM = "camel_program"
"""The kind of the spans of programs."""


CamelMode = Literal["normal", "strict"]
PolicyEnforcement = Literal["live", "replay", "off"]


@dataclass(frozen=True)
class CamelSettings:
    """What a variant does. Options as in `Camel`, which explains them."""

    mode: CamelMode = "normal"
    enforcement: PolicyEnforcement = "live"
    as_published: bool = False
    attempts: AtLeast1 = 10
    empty_replies: AtLeast1 = 5
    query_attempts: AtLeast1 = 10


class CamelAgent(LoopStep):
    """The whole agent as one element; everything it remembers of a task lives in one call of `query`."""

    name = "camel_agent"

    def __init__(self, model: ChatModel, settings: CamelSettings, suite: str, environment: str) -> None:
        self.model, self.settings = model, settings
        self.suite, self.environment = suite, environment

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request until a program has run, or the attempts are used up.

        Raises:
            ModelError: If a model gave no reply.
        """
        answers = build_model_answers(self.model, self.settings.query_attempts)
        judge = None if self.settings.enforcement == "off" else self._build_judge(at.runtime)
        if self.settings.enforcement == "replay":
            rehearsal = FunctionsRuntime(at.runtime.functions.values())
            writer = _ModelReplies(self.model, self.settings)
            trial = self._build_task(rehearsal, copy.deepcopy(at.env), None, answers, writer)
            trial.run(at.query, self._write_planner_prompt(rehearsal))
            source: PlannerReplies = _RecordedReplies(iter(trial.replies))
            task = self._build_task(at.runtime, at.env, judge, RecordedAnswers(iter(answers.replies)), source)
        else:
            task = self._build_task(
                at.runtime, at.env, judge, answers, _ModelReplies(self.model, self.settings)
            )
        task.run(at.query, self._write_planner_prompt(at.runtime))
        return at.with_messages(*task.record)

    def _build_judge(self, runtime: FunctionsRuntime) -> CamelJudge:
        return CamelJudge(load_policies_for(self.suite, runtime), self.settings.as_published)

    def _build_task(
        self,
        runtime: FunctionsRuntime,
        env: TaskEnvironment,
        judge: CamelJudge | None,
        answers: AnswerSource,
        source: PlannerReplies,
    ) -> CamelTask:
        table = build_label_table(self.suite, env, as_published=self.settings.as_published)
        world = SuiteWorld(runtime, env, table, judge, answers)
        machine = Machine(world, collect_provided_names(runtime), self.settings.mode == "strict")
        return CamelTask(machine, world, source, self.settings)

    def _write_planner_prompt(self, runtime: FunctionsRuntime) -> str:
        return write_planner_prompt(runtime, self.environment)


def load_policies_for(suite: str, runtime: FunctionsRuntime) -> CamelPolicies:
    """The suite's policies; made from the tools' names where it has no file."""
    written = load_written_policies(suite)
    if written is not None:
        return written
    _log_generated_once(suite)
    return generate_policies(
        {name: tuple(function.parameters.model_fields) for name, function in runtime.functions.items()}
    )


@cache
def _log_generated_once(suite: str) -> None:
    logger.warning(
        "CaMeL has no policies for suite '%s': tools whose name begins with a reading verb are free, all"
        " others take trusted arguments alone, and everything a tool returns is untrusted.",
        suite,
    )


def collect_provided_names(runtime: FunctionsRuntime) -> Mapping[str, Value]:
    """The names that programs find: functions, classes, tools."""
    functions = list(runtime.functions.values())
    return {
        **PROVIDED_FUNCTIONS,
        **CLASSES,
        **build_class_values(find_result_types(functions)),
        **build_tool_values(functions),
    }


def write_planner_prompt(runtime: FunctionsRuntime, environment: str) -> str:
    """The planner's system message."""
    functions = list(runtime.functions.values())
    return PLANNER.format(
        environment=environment,
        query=QUERY,
        functions=", ".join(PROVIDED_FUNCTIONS),
        text_methods=", ".join(list_methods(literal_value(""))),
        classes=", ".join(CLASSES),
        definitions="\n\n".join(write_class(of) for of in find_result_types(functions)),
        tools="\n\n".join(write_signature(function) for function in functions),
    )


class PlannerReplies:
    """Where the planner's replies come from."""

    def next_reply(self, messages: Sequence[ChatMessage]) -> str | None:
        """The next one; None if there is none."""
        raise NotImplementedError


@dataclass
class _ModelReplies(PlannerReplies):
    """A model."""

    model: ChatModel
    settings: CamelSettings

    def next_reply(self, messages: Sequence[ChatMessage]) -> str | None:
        """Ask until there is a text."""
        for _ in range(self.settings.empty_replies):
            text = text_of(self.model.complete(ChatRequest(messages, role=ROLE)).message)
            if text.strip():
                return text
        return None


@dataclass
class _RecordedReplies(PlannerReplies):
    """Recorded replies."""

    recorded: Any

    def next_reply(self, messages: Sequence[ChatMessage]) -> str | None:
        """The next recorded one."""
        found: str | None = next(self.recorded, None)
        return found


@dataclass
class CamelTask:
    """One task on its way."""

    machine: Machine
    world: SuiteWorld
    source: PlannerReplies
    settings: CamelSettings
    record: list[ChatMessage] = field(default_factory=list)
    """The conversation as it is stored: it holds results, and no model ever reads it."""
    replies: list[str | None] = field(default_factory=list)
    """What the planner answered, for a replay."""

    def run(self, query: str, prompt: str) -> None:
        """Attempt after attempt. The planner reads its prompt, the request, its programs, error reports."""
        told: list[ChatMessage] = [system(prompt), user(query)]
        for _ in range(self.settings.attempts):
            reply = self.source.next_reply(told)
            self.replies.append(reply)
            if reply is None:
                self.record.append(assistant(NO_CODE))
                return
            report = self._run_program(reply)
            if report is None:
                return
            told += [assistant(reply), user(report)]
        self.record.append(_empty_message())

    def _run_program(self, reply: str) -> str | None:
        """Run one program; the error report if it failed, None if the task is over."""
        source, failure, denied = "", None, None
        value: Value = literal_value(None)
        with span(PROGRAM) as opened:
            try:
                source = find_program(reply)
                value = run_program(source, self.machine)
            except ProgramError as error:
                failure = error
            except CallDenied as error:
                denied = error
            opened.decision = _outcome_data(failure, denied)
        ran, self.world.messages = self.world.messages, []
        self.record += [assistant(reply, [message["tool_call"] for message in ran] or None), *ran]
        if failure is not None:
            report = write_error_report(failure, source)
            self.record.append(user(report))
            return report
        if denied is not None:
            self.record.append(user(DENIED.format(tool=denied.tool, reason=denied.reason)))
            self.record.append(assistant(self._printed_text() or NO_CODE))
            return None
        self.record.append(assistant(join_final_text(self._printed_text(), value)))
        return None

    def _printed_text(self) -> str:
        return "".join(to_str(piece) for piece in self.machine.printed)


def join_final_text(printed: str, value: Value) -> str:
    """What the user reads: what was printed, and the value of the last statement."""
    last = "" if isinstance(value, Scalar) and value.raw is None else f"\n{to_str(value)}"
    # AgentDojo takes an empty answer for none at all, and would run everything again.
    return f"{printed}{last}" or "Done."


def write_error_report(failure: ProgramError, source: str) -> str:
    """What the planner is told of an error: class and place, and the text if it is trusted."""
    text = failure.text if failure.label.is_trusted else REDACTED
    return FAILED.format(place=_write_place(failure, source), kind=failure.kind, text=text)


def failing_line(failure: ProgramError) -> int:
    """The line it happened in; 0 if it is no line of a program."""
    node = failure.node
    return int(getattr(node, "lineno", 0)) if isinstance(node, ast.AST) else 0


def _write_place(failure: ProgramError, source: str) -> str:
    line = failing_line(failure)
    lines = source.splitlines()
    return f"In line {line}:\n{lines[line - 1]}" if 0 < line <= len(lines) else "In line 0."


def _outcome_data(failure: ProgramError | None, denied: CallDenied | None) -> dict[str, Any]:
    if denied is not None:
        return {"outcome": "denied", "tool": denied.tool, "reason": denied.reason}
    if failure is None:
        return {"outcome": "finished"}
    hidden = not failure.label.is_trusted
    return {"outcome": "failed", "error": failure.kind, "line": failing_line(failure), "redacted": hidden}


def _empty_message() -> ChatAssistantMessage:
    return ChatAssistantMessage(role="assistant", content=None, tool_calls=None)
