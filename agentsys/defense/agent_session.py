"""`AgentSession`: the state shared by all agents of one pipeline run, and `SessionElement`, which opens one.

`CallMeter` bounds a case's model calls, so that no output can make agents call models without end. `CommandLog`
prevents a command from running twice, `EarlierAnswers` a reading call from being answered twice.
"""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.defense.agentsys_settings import AgentSysSettings, CommandJudge
from agentsys.defense.gate import Failure, QuestionFailed
from agentsys.defense.intent import add_intent_to_tools
from agentsys.defense.pinned_tools import PinnedTools, ToolPins
from agentsys.defense.privileges import Labels, Privilege, PrivilegeStore, SortedTools
from agentsys.defense.tool_turn import CallTrace, ToolOutput, TracedCall
from agentsys.defense.validator import validate
from agentsys.errors import ConfigError
from agentsys.models.budget import RunBudgetReached
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ModelError, ToolSpec
from agentsys.models.early_questions import EarlyQuestions, questions_ahead
from agentsys.models.pipeline_elements import LoopState, LoopStep, tool_specs
from agentsys.models.trace import span
from agentsys.models.untrusted import ForeignFunction, UserRequest, group_by_server


class CallBudgetExceeded(Exception):
    """A sub-agent tried to call a model after its budget was used up."""


class CallMeter:
    """Budget of model calls of one pipeline run, for the main agent and all its sub-agents.

    `main_calls` are reserved for the main agent, so that an output which uses up the rest cannot keep it from
    answering. A subtask is everything that one call of the main agent triggers.
    """

    def __init__(self, *, case_calls: int, subtask_calls: int, main_calls: int) -> None:
        self._left = case_calls
        self._subtask_calls = self._subtask_left = subtask_calls
        self._reserved = main_calls

    def begin_subtask(self) -> None:
        """Start a new subtask with a fresh budget."""
        self._subtask_left = self._subtask_calls

    def count_call(self, *, main: bool) -> None:
        """Count one call.

        Raises:
            CallBudgetExceeded: If no call is left.
        """
        if main and self._reserved:
            self._reserved -= 1
        elif self._left <= self._reserved or (not main and self._subtask_left <= 0):
            raise CallBudgetExceeded
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
        """Answer one request; raises `CallBudgetExceeded` if no call is left."""
        self._meter.count_call(main=self._main)
        return self._model.complete(request)


class CommandLog:
    """Commands already executed in a subtask, so that a restarted worker does not execute them twice.

    The effects of an abandoned worker's commands stay. If its successor makes the very same command, it gets the
    output of the first run. Identical commands of workers that were not abandoned run once each.
    """

    def __init__(self) -> None:
        self._outputs: dict[str, list[ToolOutput]] = {}
        self._made: Counter[str] = Counter()

    @property
    def run_count(self) -> int:
        """Number of commands that have been run."""
        return sum(len(outputs) for outputs in self._outputs.values())

    def find_output(self, call: TracedCall) -> ToolOutput | None:
        """Take the output of an identical command that an abandoned worker ran; None if none is left."""
        key = _make_call_key(call)
        outputs, made = self._outputs.get(key, []), self._made[key]
        if made >= len(outputs):
            return None
        self._made[key] += 1
        return outputs[made]

    def record_run(self, call: TracedCall, output: ToolOutput) -> None:
        """Record a command that was just run."""
        self._outputs.setdefault(_make_call_key(call), []).append(output)
        self._made[_make_call_key(call)] += 1

    def mark(self) -> Counter[str]:
        """Return a checkpoint for `rewind_to`."""
        return Counter(self._made)

    def rewind_to(self, mark: Counter[str]) -> None:
        """Make the commands run since a checkpoint available to `find_output`: their workers were abandoned."""
        self._made = Counter(mark)


class EarlierAnswers:
    """The answers to the main agent's reading calls since the last command."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, call: TracedCall) -> str | None:
        """Return the answer to an identical call with an identical intent; None if a command ran since."""
        return self._texts.get(_make_call_key(call, call.intent))

    def put(self, call: TracedCall, text: str, *, only_read: bool) -> None:
        """Store an answer; after a command, which may have changed the data, clear all of them instead."""
        if not only_read:
            self._texts.clear()
        elif not text.startswith('{"error": '):
            self._texts[_make_call_key(call, call.intent)] = text


def _make_call_key(call: TracedCall, *more: object) -> str:
    return json.dumps([call.tool, dict(call.args), *more], sort_keys=True, default=str)


class AgentSession:
    """State of one pipeline run; each `query` creates a new one.

    Only the main agent and the validator see the user's request, never a worker. `pins` fix the tools as they were
    first seen; None: the tools as they are now.
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
        self.model: ChatModel = _MeteredModel(self.meter, model, main=False)
        """The model for workers, validators and sanitizers; its calls count against the subtask."""
        self.commands = CommandLog()
        """Commands of the current subtask."""
        self.earlier_answers = EarlierAnswers()
        self.carried: dict[str, Any] = {}
        """The pipeline's extra arguments, for the elements that follow."""
        self.failure: Failure | None = None
        """The reason why the main agent was stopped; None if it was not."""
        self.early: EarlyQuestions | None = None
        """Questions ahead of their turn; None: every question is asked in its turn."""
        self.run_count = 0
        """Number of tools that all agents have run."""
        self._early_labels: Future[SortedTools] | None = None
        self._privilege_store, self._unmetered = store, model

    def begin_subtask(self) -> None:
        """Reset the subtask's budget and command log, for a new call of the main agent."""
        self.meter.begin_subtask()
        self.commands = CommandLog()

    @cached_property
    def tools(self) -> Sequence[ToolSpec]:
        """All tools, each with the `intent` parameter, as isolated agents see them."""
        return add_intent_to_tools(list(self.runtime.functions.values()))

    @cached_property
    def reading_tools(self) -> Sequence[ToolSpec]:
        """The tools among `tools` that only read."""
        return [tool for tool in self.tools if self.labels[tool.name] is Privilege.QUERY]

    @cached_property
    def plain_tools(self) -> Sequence[ToolSpec]:
        """All tools without the `intent` parameter."""
        return tool_specs(self.runtime.functions.values())

    @cached_property
    def labels(self) -> Labels:
        """Privilege of each tool. The model is asked once, for the whole toolset, on first use.

        Raises:
            QuestionFailed: If the model gave no reply.
        """
        try:
            sorted_tools = self._sort_tools()
        except ModelError as error:
            raise QuestionFailed(error) from error
        with span("privileges") as opened:
            opened.decision = sorted_tools.as_decision()
        return sorted_tools.labels

    def _sort_tools(self) -> SortedTools:
        # One question per server, so that no server's descriptions can influence the labels of another's tools.
        groups = self.looks or [
            tool_specs(group) for group in group_by_server(self.runtime.functions.values())
        ]
        sort = partial(self._privilege_store.sort_tools, self._unmetered)
        sorted_tools = reduce(add, map(sort, groups or [[]]))
        return sorted_tools.tighten(sort(self.changed)) if self.changed else sorted_tools

    def allow_questions_ahead(self, early: EarlyQuestions | None) -> None:
        """Let agents ask ahead, and have the tools sorted meanwhile; the record has the labels once they are used."""
        if early is not None and self.settings.sorts_tools:
            self.early, self._early_labels = early, early.start(self._sort_tools)

    @cached_property
    def early_labels(self) -> Labels:
        """The labels for reading ahead; empty where there are none yet."""
        try:
            return {} if self._early_labels is None else self._early_labels.result().labels
        except (ModelError, ConfigError, RunBudgetReached):
            return {}  # Where labels are needed the question is asked again, and its error counts.

    def make_trial(self, model: ChatModel, env: TaskEnvironment) -> AgentSession:
        """Copy the session for calls that are only tried, with another model and environment."""
        trial = copy.copy(self)
        trial.model, trial.env, trial.early = model, env, None
        trial.meter, trial.commands = copy.copy(self.meter), CommandLog()
        trial.earlier_answers = copy.deepcopy(self.earlier_answers)
        return trial

    def only_reads(self, tool: str) -> bool:
        """True if a tool only reads."""
        return self.labels[tool] is Privilege.QUERY

    def allows(self, judge: CommandJudge, call: TracedCall, earlier: CallTrace) -> bool:
        """True if a call may run: a reading call always, a command if the judge, shown `earlier`, agrees."""
        if judge is CommandJudge.OFF or self.only_reads(call.tool):
            return True
        function = self.runtime.functions[call.tool]
        described = "" if isinstance(function, ForeignFunction) else function.description
        threshold = self.settings.validator_threshold
        return validate(self.model, self.request, earlier, call, described, threshold).allow

    def allows_within_budget(self, judge: CommandJudge, call: TracedCall, earlier: CallTrace) -> bool:
        """Return `allows`; False if no model call is left to judge."""
        try:
            return self.allows(judge, call, earlier)
        except CallBudgetExceeded:
            return False


class SessionElement(LoopStep):
    """An agent of AgentSys as an AgentDojo pipeline element: each `query` is a session of its own."""

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
        with questions_ahead(self.model) as early, span("main") as opened:
            session.allow_questions_ahead(early)
            opened.messages = context  # The same list: the span holds the context however this ends.
            opened.decision = {"finished": self.converse(session, context)}
            if session.failure is not None:
                opened.decision |= {"failure": session.failure.value}
            if session.changed:
                opened.decision |= {"changed_tools": [tool.name for tool in session.changed]}
        return replace(at, messages=context, extra=session.carried)

    @abstractmethod
    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn; returns True if the model stopped by itself."""
