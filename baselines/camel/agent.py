"""The agent: a planner that never sees data writes programs until one runs to its end."""

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
from baselines.camel.language.classes import CLASSES, class_values
from baselines.camel.language.failure import CallDenied, ProgramError
from baselines.camel.language.functions import FUNCTIONS
from baselines.camel.language.machine import Machine
from baselines.camel.language.methods import methods
from baselines.camel.language.parse import code_block
from baselines.camel.language.rendering import shown
from baselines.camel.language.statements import run_program
from baselines.camel.policy import Judge, Policies, generated_policies, written_policies
from baselines.camel.prompts import DENIED, FAILED, NO_CODE, PLANNER, REDACTED
from baselines.camel.reader import Answers, Served, asked
from baselines.camel.signatures import QUERY, class_text, result_types, signature, tool_values
from baselines.camel.suite_world import SuiteWorld
from baselines.flow.label_table import table_for
from baselines.flow.values import Scalar, Value, literal

logger = logging.getLogger(__name__)
ROLE = "agent"
PROGRAM = "camel_program"
"""The kind of the spans of programs."""


EvaluationMode = Literal["normal", "strict"]
Enforcement = Literal["live", "replay", "off"]


@dataclass(frozen=True)
class CamelSettings:
    """What a variant does. Options as in `Camel`, which explains them."""

    mode: EvaluationMode = "normal"
    enforcement: Enforcement = "live"
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
        answers = asked(self.model, self.settings.query_attempts)
        judge = None if self.settings.enforcement == "off" else self._judge(at.runtime)
        if self.settings.enforcement == "replay":
            rehearsal = FunctionsRuntime(at.runtime.functions.values())
            writer = _Writer(self.model, self.settings)
            trial = self._task(rehearsal, copy.deepcopy(at.env), None, answers, writer)
            trial.run(at.query, self._planner_prompt(rehearsal))
            source: ReplySource = _Script(iter(trial.replies))
            task = self._task(at.runtime, at.env, judge, Served(iter(answers.given)), source)
        else:
            task = self._task(at.runtime, at.env, judge, answers, _Writer(self.model, self.settings))
        task.run(at.query, self._planner_prompt(at.runtime))
        return at.with_messages(*task.record)

    def _judge(self, runtime: FunctionsRuntime) -> Judge:
        return Judge(policies_for(self.suite, runtime), self.settings.as_published)

    def _task(
        self,
        runtime: FunctionsRuntime,
        env: TaskEnvironment,
        judge: Judge | None,
        answers: Answers,
        source: ReplySource,
    ) -> CamelTask:
        table = table_for(self.suite, env, as_published=self.settings.as_published)
        world = SuiteWorld(runtime, env, table, judge, answers)
        machine = Machine(world, provided(runtime), self.settings.mode == "strict")
        return CamelTask(machine, world, source, self.settings)

    def _planner_prompt(self, runtime: FunctionsRuntime) -> str:
        return planner_prompt(runtime, self.environment)


def policies_for(suite: str, runtime: FunctionsRuntime) -> Policies:
    """The suite's policies; made from the tools' names where it has no file."""
    written = written_policies(suite)
    if written is not None:
        return written
    _say_once(suite)
    return generated_policies(
        {name: tuple(function.parameters.model_fields) for name, function in runtime.functions.items()}
    )


@cache
def _say_once(suite: str) -> None:
    logger.warning(
        "CaMeL has no policies for suite '%s': tools whose name begins with a reading verb are free, all"
        " others take trusted arguments alone, and everything a tool returns is untrusted.",
        suite,
    )


def provided(runtime: FunctionsRuntime) -> Mapping[str, Value]:
    """The names that programs find: functions, classes, tools."""
    functions = list(runtime.functions.values())
    return {**FUNCTIONS, **CLASSES, **class_values(result_types(functions)), **tool_values(functions)}


def planner_prompt(runtime: FunctionsRuntime, environment: str) -> str:
    """The planner's system message."""
    functions = list(runtime.functions.values())
    return PLANNER.format(
        environment=environment,
        query=QUERY,
        functions=", ".join(FUNCTIONS),
        text_methods=", ".join(methods(literal(""))),
        classes=", ".join(CLASSES),
        definitions="\n\n".join(class_text(of) for of in result_types(functions)),
        tools="\n\n".join(signature(function) for function in functions),
    )


class ReplySource:
    """Where the planner's replies come from."""

    def reply(self, messages: Sequence[ChatMessage]) -> str | None:
        """The next one; None if there is none."""
        raise NotImplementedError


@dataclass
class _Writer(ReplySource):
    """A model."""

    model: ChatModel
    settings: CamelSettings

    def reply(self, messages: Sequence[ChatMessage]) -> str | None:
        """Ask until there is a text."""
        for _ in range(self.settings.empty_replies):
            text = text_of(self.model.complete(ChatRequest(messages, role=ROLE)).message)
            if text.strip():
                return text
        return None


@dataclass
class _Script(ReplySource):
    """Recorded replies."""

    recorded: Any

    def reply(self, messages: Sequence[ChatMessage]) -> str | None:
        """The next recorded one."""
        found: str | None = next(self.recorded, None)
        return found


@dataclass
class CamelTask:
    """One task on its way."""

    machine: Machine
    world: SuiteWorld
    source: ReplySource
    settings: CamelSettings
    record: list[ChatMessage] = field(default_factory=list)
    """The conversation as it is stored: it holds results, and no model ever reads it."""
    replies: list[str | None] = field(default_factory=list)
    """What the planner answered, for a replay."""

    def run(self, query: str, prompt: str) -> None:
        """Attempt after attempt. The planner reads its prompt, the request, its programs, error reports."""
        told: list[ChatMessage] = [system(prompt), user(query)]
        for _ in range(self.settings.attempts):
            reply = self.source.reply(told)
            self.replies.append(reply)
            if reply is None:
                self.record.append(assistant(NO_CODE))
                return
            report = self._attempt(reply)
            if report is None:
                return
            told += [assistant(reply), user(report)]
        self.record.append(_empty())

    def _attempt(self, reply: str) -> str | None:
        """Run one program; the error report if it failed, None if the task is over."""
        source, failure, denied = "", None, None
        value: Value = literal(None)
        with span(PROGRAM) as opened:
            try:
                source = code_block(reply)
                value = run_program(source, self.machine)
            except ProgramError as error:
                failure = error
            except CallDenied as error:
                denied = error
            opened.decision = _outcome(failure, denied)
        ran, self.world.messages = self.world.messages, []
        self.record += [assistant(reply, [message["tool_call"] for message in ran] or None), *ran]
        if failure is not None:
            report = error_report(failure, source)
            self.record.append(user(report))
            return report
        if denied is not None:
            self.record.append(user(DENIED.format(tool=denied.tool, reason=denied.reason)))
            self.record.append(assistant(self._printed() or NO_CODE))
            return None
        self.record.append(assistant(final_text(self._printed(), value)))
        return None

    def _printed(self) -> str:
        return "".join(shown(piece) for piece in self.machine.printed)


def final_text(printed: str, value: Value) -> str:
    """What the user reads: what was printed, and the value of the last statement."""
    last = "" if isinstance(value, Scalar) and value.raw is None else f"\n{shown(value)}"
    # AgentDojo takes an empty answer for none at all, and would run everything again.
    return f"{printed}{last}" or "Done."


def error_report(failure: ProgramError, source: str) -> str:
    """What the planner is told of an error: class and place, and the text if it is trusted."""
    text = failure.text if failure.label.trusted else REDACTED
    return FAILED.format(place=_place(failure, source), kind=failure.kind, text=text)


def line_of(failure: ProgramError) -> int:
    """The line it happened in; 0 if it is no line of a program."""
    node = failure.node
    return int(getattr(node, "lineno", 0)) if isinstance(node, ast.AST) else 0


def _place(failure: ProgramError, source: str) -> str:
    line = line_of(failure)
    lines = source.splitlines()
    return f"In line {line}:\n{lines[line - 1]}" if 0 < line <= len(lines) else "In line 0."


def _outcome(failure: ProgramError | None, denied: CallDenied | None) -> dict[str, Any]:
    if denied is not None:
        return {"outcome": "denied", "tool": denied.tool, "reason": denied.reason}
    if failure is None:
        return {"outcome": "finished"}
    hidden = not failure.label.trusted
    return {"outcome": "failed", "error": failure.kind, "line": line_of(failure), "redacted": hidden}


def _empty() -> ChatAssistantMessage:
    return ChatAssistantMessage(role="assistant", content=None, tool_calls=None)
