"""`AgentSession`: what all agents of one run of the pipeline share, and `SessionElement`, which opens one.

`CallMeter` bounds a case's model calls, so that no output can make agents ask without end; `CommandLog` and
`EarlierAnswers` keep the same thing from being done, or asked, twice.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.defense.agentsys_settings import AgentSysSettings, CommandJudge
from agentsys.defense.call_trace import CallTrace, TracedCall, UserRequest
from agentsys.defense.gate import Failure, QuestionFailed
from agentsys.defense.intent import add_intent_to_tools
from agentsys.defense.pinned_tools import PinnedTools, ToolPins
from agentsys.defense.privileges import Labels, Privilege, PrivilegeStore
from agentsys.defense.tool_turn import ToolOutput
from agentsys.defense.validator import validate
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ModelError, ToolSpec
from agentsys.models.pipeline_elements import LoopState, LoopStep, tool_specs
from agentsys.models.trace import span
from agentsys.models.untrusted import ForeignFunction, group_by_server


class OutOfCalls(Exception):
    """An agent below the main one wanted to ask a model and may not any more."""


class CallMeter:
    """Model calls of one run of the pipeline: those of the main agent, and those of everybody it set to work.

    What the main agent may need (`main_calls`) is kept back, so an output that uses up the rest cannot keep it from
    answering. A subtask is what a single call of the main agent sets off.
    """

    def __init__(self, *, case_calls: int, subtask_calls: int, main_calls: int) -> None:
        self._left = case_calls
        self._subtask_calls = self._subtask_left = subtask_calls
        self._kept_back = main_calls

    def begin_subtask(self) -> None:
        """Let a new subtask begin, with calls of its own."""
        self._subtask_left = self._subtask_calls

    def count_call(self, *, main: bool) -> None:
        """Count one call.

        Raises:
            OutOfCalls: If it may not be made.
        """
        if main and self._kept_back:
            self._kept_back -= 1
        elif self._left <= self._kept_back or (not main and self._subtask_left <= 0):
            raise OutOfCalls
        self._left -= 1
        if not main:
            self._subtask_left -= 1


class _MeteredModel:
    def __init__(self, meter: CallMeter, model: ChatModel, *, main: bool) -> None:
        self._meter, self._model, self._main = meter, model, main

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request; raises `OutOfCalls` if no call is left."""
        self._meter.count_call(main=self._main)
        return self._model.complete(request)


class CommandLog:
    """Commands that the workers of one subtask had run, and how many of them living workers know of.

    A worker that is given up leaves its commands' effects behind. Its successor reads a cleaned output and
    may need the very same command: that one is answered with the first run's output. Two commands that are
    alike and made by living workers are two commands.
    """

    def __init__(self) -> None:
        self._outputs: dict[str, list[ToolOutput]] = {}
        self._made: Counter[str] = Counter()

    @property
    def run_count(self) -> int:
        """Number of commands that have been run."""
        return sum(len(outputs) for outputs in self._outputs.values())

    def find_output(self, call: TracedCall) -> ToolOutput | None:
        """The output of an identical command that a worker given up had run; None if there is none left."""
        key = _make_call_key(call)
        outputs, made = self._outputs.get(key, []), self._made[key]
        if made >= len(outputs):
            return None
        self._made[key] += 1
        return outputs[made]

    def record_run(self, call: TracedCall, output: ToolOutput) -> None:
        """Enter a command that was run now."""
        self._outputs.setdefault(_make_call_key(call), []).append(output)
        self._made[_make_call_key(call)] += 1

    def mark(self) -> Counter[str]:
        """A mark of the commands made so far, for `rewind_to`."""
        return Counter(self._made)

    def rewind_to(self, mark: Counter[str]) -> None:
        """Forget who made what since a mark: those workers are given up."""
        self._made = Counter(mark)


class EarlierAnswers:
    """The answers to the main agent's reading calls since the last command."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, call: TracedCall) -> str | None:
        """The answer to the very same call with the very same intent, if nothing has changed since."""
        return self._texts.get(_make_call_key(call, call.intent))

    def put(self, call: TracedCall, text: str, *, only_read: bool) -> None:
        """Keep an answer; forget all of them where a command may have changed what they were read from."""
        if not only_read:
            self._texts.clear()
        elif not text.startswith('{"error": '):
            self._texts[_make_call_key(call, call.intent)] = text


def _make_call_key(call: TracedCall, *more: object) -> str:
    return json.dumps([call.tool, dict(call.args), *more], sort_keys=True, default=str)


class AgentSession:
    """One run of the pipeline. Made afresh in each `query`, so nothing is carried over to a second one.

    The user's request is for the main agent and the validator, never for a worker. `pins` are the tools as they were
    looked at first; None: as they are now.
    """

    def __init__(
        self,
        model: ChatModel,
        settings: AgentSysSettings,
        store: PrivilegeStore,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment,
        pins: ToolPins | None = None,
    ) -> None:
        self.settings, self.env = settings, env
        pinned = PinnedTools(runtime, (), ()) if pins is None else pins.pin_tools(runtime)
        self.runtime, self.looks, self.changed = pinned.runtime, pinned.looks, pinned.changed
        self.request = UserRequest(query)
        self.meter = CallMeter(
            case_calls=settings.case_calls,
            subtask_calls=settings.subtask_calls,
            main_calls=settings.main_steps + 1,
        )
        self.main_model = _MeteredModel(self.meter, model, main=True)
        self.model = _MeteredModel(self.meter, model, main=False)
        """The model as workers, validators and sanitizers ask it."""
        self.commands = CommandLog()
        """Commands of the current subtask."""
        self.earlier_answers = EarlierAnswers()
        self.carried: dict[str, Any] = {}
        """What the pipeline's extra arguments hold, for whoever goes on from here."""
        self.failure: Failure | None = None
        """Why the main agent was stopped, where it was."""
        self._privilege_store, self._unmetered = store, model

    def begin_subtask(self) -> None:
        """The main agent makes a call: its subtask starts with budgets of its own."""
        self.meter.begin_subtask()
        self.commands = CommandLog()

    @cached_property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools as isolated agents see them, each with an intent."""
        return add_intent_to_tools(list(self.runtime.functions.values()))

    @cached_property
    def reading_tools(self) -> Sequence[ToolSpec]:
        """Those of `tools` that only read."""
        return [tool for tool in self.tools if self.labels[tool.name] is Privilege.QUERY]

    @cached_property
    def plain_tools(self) -> Sequence[ToolSpec]:
        """The tools as they are."""
        return tool_specs(self.runtime.functions.values())

    @cached_property
    def labels(self) -> Labels:
        """Each tool's privilege. The model is asked for the whole toolset when it first matters.

        Raises:
            QuestionFailed: If it gave no reply.
        """
        # One question each: no server's descriptions speak of another's tools.
        groups = self.looks or [
            tool_specs(group) for group in group_by_server(self.runtime.functions.values())
        ]
        try:
            sort = partial(self._privilege_store.sort_tools, self._unmetered)
            sorted_tools = reduce(add, map(sort, groups or [[]]))
            if self.changed:
                sorted_tools = sorted_tools.tighten(sort(self.changed))
        except ModelError as error:
            raise QuestionFailed(error) from error
        with span("privileges") as opened:
            opened.decision = sorted_tools.as_decision()
        return sorted_tools.labels

    def only_reads(self, tool: str) -> bool:
        """Whether a tool only reads."""
        return self.labels[tool] is Privilege.QUERY

    def allows(self, judge: CommandJudge, call: TracedCall, earlier: CallTrace) -> bool:
        """Whether a call may run: reading always, a command if the judge agrees, who is told of earlier calls."""
        if judge is CommandJudge.OFF or self.only_reads(call.tool):
            return True
        function = self.runtime.functions[call.tool]
        described = "" if isinstance(function, ForeignFunction) else function.description
        threshold = self.settings.validator_threshold
        return validate(self.model, self.request, earlier, call, described, threshold).allow

    def allows_within_budget(self, judge: CommandJudge, call: TracedCall, earlier: CallTrace) -> bool:
        """Whether `allows` says so; a call that nobody is left to judge may not run."""
        try:
            return self.allows(judge, call, earlier)
        except OutOfCalls:
            return False


class SessionElement(LoopStep):
    """An agent of AgentSys as an element for AgentDojo's pipelines: each `query` is a session of its own."""

    def __init__(
        self,
        model: ChatModel,
        settings: AgentSysSettings,
        store: PrivilegeStore,
        pins: ToolPins | None = None,
    ) -> None:
        self.model, self.settings, self.privilege_store, self.pins = model, settings, store, pins

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request until the model answers or its steps are used up."""
        session = AgentSession(
            self.model, self.settings, self.privilege_store, at.query, at.runtime, at.env, self.pins
        )
        session.carried = dict(at.extra)
        context = list(at.messages)
        with span("main") as opened:
            opened.messages = context  # The same list: the span holds the context however this ends.
            opened.decision = {"finished": self.converse(session, context)}
            if session.failure is not None:
                opened.decision |= {"failure": session.failure.value}
            if session.changed:
                opened.decision |= {"changed_tools": [tool.name for tool in session.changed]}
        return replace(at, messages=context, extra=session.carried)

    @abstractmethod
    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn; returns whether the model stopped by itself."""
