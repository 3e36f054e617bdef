"""`CamelAgent`: a planner writes programs until one has run to its end."""

from __future__ import annotations

import ast
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.base.option_checks import AtLeast1
from agentsys.models.chat import ChatModel, ChatRequest, assistant, system, text_of, user
from agentsys.models.pipeline_elements import LoopState, LoopStep, choose_free_name
from agentsys.models.reply_contract import ReplyContract, UnusableReply
from agentsys.models.trace import ReplyFlaw, mark_reply_unreadable, span
from baselines.camel import suite_world
from baselines.camel.language.functions import PROVIDED_FUNCTIONS, build_class_values, select_classes
from baselines.camel.language.interpreter import find_program, run_program
from baselines.camel.language.machine import CallDenied, Machine, ProgramError
from baselines.camel.language.members import list_methods
from baselines.camel.language.operators import to_str
from baselines.camel.prompts import DENIED, FAILED, NO_CODE, PLANNER, PROGRAM_ANSWER, REDACTED
from baselines.defense_bases import warn_once
from baselines.flow.labelled_values import Scalar, Value, build_label_table, make_literal

logger = logging.getLogger(__name__)
ROLE = "agent"
PROGRAM = "camel_program"
"""The kind of the spans of programs."""


CamelMode = Literal["normal", "strict"]
PolicyEnforcement = Literal["live", "replay", "off"]


@dataclass(frozen=True)
class CamelSettings:
    """Options of a variant; see `Camel`."""

    mode: CamelMode = "normal"
    enforcement: PolicyEnforcement = "live"
    as_published: bool = False
    attempts: AtLeast1 = 10
    empty_replies: AtLeast1 = 5
    query_attempts: AtLeast1 = 10


class CamelAgent(LoopStep):
    """The whole agent as one pipeline element; the state of a task lives in one call of `query`."""

    name = "camel_agent"

    def __init__(self, model: ChatModel, settings: CamelSettings, suite: str, environment: str) -> None:
        self.model, self.settings = model, settings
        self.suite, self.environment = suite, environment

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request until a program has run, or the attempts are used up."""
        settings = self.settings
        planner: PlannerReader = self._ask_planner
        reader: suite_world.AnswerReader = partial(
            suite_world.ask_reader, self.model, settings.query_attempts
        )
        if settings.enforcement == "replay":
            replies: list[Any] = []
            answers: list[Any] = []
            rehearsal = FunctionsRuntime(at.runtime.functions.values())
            trial = replace(at, runtime=rehearsal, env=copy.deepcopy(at.env))
            self._run_task(trial, None, _record(planner, replies), _record(reader, answers))
            planner, reader = _play_back(replies), _play_back(answers)
        judge = None
        if settings.enforcement != "off":
            judge = suite_world.CamelJudge(load_policies_for(self.suite, at.runtime), settings.as_published)
        return at.with_messages(*self._run_task(at, judge, planner, reader))

    def _ask_planner(self, messages: Sequence[ChatMessage]) -> str | None:
        for _ in range(self.settings.empty_replies):
            text = text_of(self.model.complete(ChatRequest(messages, role=ROLE)).message)
            if text.strip():
                return text
        return None

    def _run_task(
        self,
        at: LoopState,
        judge: suite_world.CamelJudge | None,
        planner: PlannerReader,
        reader: suite_world.AnswerReader,
    ) -> list[ChatMessage]:
        table = build_label_table(self.suite, at.env, as_published=self.settings.as_published)
        world = suite_world.SuiteWorld(at.runtime, at.env, table, judge, reader)
        machine = Machine(
            world, collect_provided_names(at.runtime, self.suite), self.settings.mode == "strict"
        )
        task = CamelTask(machine, world, planner, self.settings)
        task.run(at.query, build_planner_prompt(at.runtime, self.environment, self.suite))
        return task.record


PlannerReader = Callable[[Sequence[ChatMessage]], str | None]
"""The planner's conversation -> its next reply; None if there is none."""


def _record(function: Callable[..., Any], replies: list[Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        replies.append(function(*args))
        return replies[-1]

    return run


def _play_back(replies: Sequence[Any]) -> Callable[..., Any]:
    left = iter(replies)
    return lambda *_: next(left, None)


def load_policies_for(suite: str, runtime: FunctionsRuntime) -> suite_world.CamelPolicies:
    """Load the suite's policies; generated from the tools' names if it has no file."""
    written = suite_world.load_written_policies(suite)
    if written is not None:
        return written
    words = (
        "CaMeL has no policies for suite '%s': tools whose name begins with a reading verb are free, all"
        " others take trusted arguments alone, and everything a tool returns is untrusted."
    )
    warn_once(logger, words, suite)
    return suite_world.generate_policies(
        {name: tuple(f.parameters.model_fields) for name, f in runtime.functions.items()}
    )


def collect_provided_names(runtime: FunctionsRuntime, suite: str) -> Mapping[str, Value]:
    """Collect the names that programs find: functions, classes, tools."""
    functions = list(runtime.functions.values())
    return {
        **_choose_free_names(PROVIDED_FUNCTIONS, runtime),
        **_choose_free_names(select_classes(suite), runtime),
        **build_class_values(suite_world.find_result_types(functions)),
        **suite_world.build_tool_values(functions),
    }


def _choose_free_names(provided: Mapping[str, Value], runtime: FunctionsRuntime) -> dict[str, Value]:
    return {choose_free_name(name, runtime.functions): value for name, value in provided.items()}


def read_program(reply: str) -> str:
    """Return the program in a reply.

    Raises:
        UnusableReply: If there is none; the message says why.
    """
    try:
        return find_program(reply)
    except ProgramError as fault:
        raise UnusableReply(ReplyFlaw.UNREAD, fault.text) from None


PROGRAM_CONTRACT = ReplyContract(ROLE, PLANNER, *PROGRAM_ANSWER, read_program)
"""The planner's answer; after a program that fails it gets an error report, as in the paper."""


def build_planner_prompt(runtime: FunctionsRuntime, environment: str, suite: str) -> str:
    """Write the planner's system message."""
    functions = list(runtime.functions.values())
    task = PLANNER.format(
        environment=environment,
        query=choose_free_name(suite_world.QUERY, runtime.functions),
        functions=", ".join(_choose_free_names(PROVIDED_FUNCTIONS, runtime)),
        text_methods=", ".join(list_methods(make_literal(""))),
        classes=", ".join(_choose_free_names(select_classes(suite), runtime)),
        definitions="\n\n".join(
            suite_world.format_class(of) for of in suite_world.find_result_types(functions)
        ),
        tools="\n\n".join(suite_world.format_signature(function) for function in functions),
    )
    return replace(PROGRAM_CONTRACT, task=task).prompt


@dataclass
class CamelTask:
    """Runs one task, attempt after attempt."""

    machine: Machine
    world: suite_world.SuiteWorld
    planner: PlannerReader
    settings: CamelSettings
    record: list[ChatMessage] = field(default_factory=list)
    """The conversation as it is stored: it holds results, and no model ever reads it."""

    def run(self, query: str, prompt: str) -> None:
        """Run attempts until one succeeds. The planner reads its prompt, the request, its programs and errors."""
        conversation: list[ChatMessage] = [system(prompt), user(query)]
        for _ in range(self.settings.attempts):
            reply = self.planner(conversation)
            if reply is None:
                self.record.append(assistant(NO_CODE))
                return
            report = self._run_program(reply)
            if report is None:
                return
            conversation += [assistant(reply), user(report)]
        self.record.append(ChatAssistantMessage(role="assistant", content=None, tool_calls=None))

    def _run_program(self, reply: str) -> str | None:
        """Run one program; return the error report if it failed, None if the task is over."""
        source, failure, denied = "", None, None
        value: Value = make_literal(None)
        with span(PROGRAM) as opened:
            try:
                source = find_program(reply)
                value = run_program(source, self.machine)
            except ProgramError as error:
                failure = error
            except CallDenied as error:
                denied = error
            opened.decision = _describe_outcome(failure, denied)
        readable = failure is None or not isinstance(PROGRAM_CONTRACT.read_reply(reply), ReplyFlaw)
        if readable and failure is not None and failure.kind == "SyntaxError":
            mark_reply_unreadable()
        ran, self.world.messages = self.world.messages, []
        self.record += [assistant(reply, [message["tool_call"] for message in ran] or None), *ran]
        if failure is not None:
            text = failure.text if failure.label.is_trusted else REDACTED
            line, lines = find_failing_line(failure), source.splitlines()
            location = f"In line {line}:\n{lines[line - 1]}" if 0 < line <= len(lines) else "In line 0."
            report = FAILED.format(place=location, kind=failure.kind, text=text)
            self.record.append(user(report))
            return report
        printed = "".join(map(to_str, self.machine.printed))
        if denied is not None:
            self.record.append(user(DENIED.format(tool=denied.tool, reason=denied.reason)))
        self.record.append(
            assistant(join_final_text(printed, value) if denied is None else printed or NO_CODE)
        )
        return None


def join_final_text(printed: str, value: Value) -> str:
    """Build the user's answer: the printed text and the value of the last statement."""
    last = "" if isinstance(value, Scalar) and value.raw is None else f"\n{to_str(value)}"
    # AgentDojo takes an empty answer for none at all, and would run everything again.
    return f"{printed}{last}" or "Done."


def find_failing_line(failure: ProgramError) -> int:
    """Return the number of the failing line; 0 if it is not in the program."""
    node = failure.node
    return int(getattr(node, "lineno", 0)) if isinstance(node, ast.AST) else 0


def _describe_outcome(failure: ProgramError | None, denied: CallDenied | None) -> dict[str, Any]:
    if denied is not None:
        return {"outcome": "denied", "tool": denied.tool, "reason": denied.reason}
    if failure is None:
        return {"outcome": "finished"}
    hidden = not failure.label.is_trusted
    return {
        "outcome": "failed",
        "error": failure.kind,
        "line": find_failing_line(failure),
        "redacted": hidden,
    }
