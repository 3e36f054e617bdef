"""`AgentSession`: what all agents of one run of the pipeline share, and `SessionElement`, which opens one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.defense.call_trace import CallTrace, TracedCall
from agentsys.defense.commands import CommandLog, EarlierAnswers
from agentsys.defense.failures import QuestionFailed
from agentsys.defense.grounding import UserRequest
from agentsys.defense.intent import add_intent_to_tools
from agentsys.defense.meter import CallMeter
from agentsys.defense.privileges import Labels, Privilege, PrivilegeStore
from agentsys.defense.rules import RuleDecision, KnownValues, ProposedCommand, apply_rules
from agentsys.defense.settings import AgentSysSettings, CommandJudge
from agentsys.defense.validator import note_ruling, validate
from agentsys.models.chat import ChatModel, ToolSpec
from agentsys.models.element import LoopState, LoopStep
from agentsys.models.errors import ModelError
from agentsys.models.tools import tool_specs
from agentsys.models.trace import span


class AgentSession:
    """One run of the pipeline. Made afresh in each `query`, so nothing is carried over to a second one.

    Args:
        model: The model behind all agents.
        settings: The variant of AgentSys.
        book: The book that the tools' privileges are kept in.
        query: The user's request: for the main agent and the validator, never for a worker.
        runtime: The tools.
        env: The environment that they act on.
    """

    def __init__(
        self,
        model: ChatModel,
        settings: AgentSysSettings,
        book: PrivilegeStore,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment,
    ) -> None:
        self.settings, self.runtime, self.env = settings, runtime, env
        self.request = UserRequest(query)
        self.meter = CallMeter(
            model,
            case_calls=settings.case_calls,
            subtask_calls=settings.subtask_calls,
            main_calls=settings.main_steps + 1,
        )
        self.main_model, self.model = self.meter.main_model, self.meter.inner_model
        self.commands = CommandLog()
        """Commands of the current subtask."""
        self.earlier_answers = EarlierAnswers()
        self.known_values = KnownValues()
        """What the main agent was given so far, as far as it is of a closed format."""
        self._privilege_store, self._unmetered = book, model

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
        try:
            found = self._privilege_store.sort_tools(self._unmetered, self.plain_tools)
        except ModelError as error:
            raise QuestionFailed(error) from error
        with span("privileges") as opened:
            opened.decision = found.as_decision()
        return found.labels

    def only_reads(self, tool: str) -> bool:
        """Whether a tool only reads."""
        return self.labels[tool] is Privilege.QUERY

    def allows(
        self, judge: CommandJudge, call: TracedCall, earlier: CallTrace, undeclared: Sequence[str] = ()
    ) -> bool:
        """Whether a call may run: reading always, a command if the judge agrees.

        Args:
            judge: The judge that decides.
            call: The proposed call.
            earlier: The calls before it that its agent knows of.
            undeclared: Arguments that the tool does not have.
        """
        if judge is CommandJudge.OFF or self.only_reads(call.tool):
            return True
        if judge is not CommandJudge.MODEL:
            ruling = apply_rules(
                ProposedCommand(
                    call,
                    tuple(undeclared),
                    self.request,
                    self.known_values,
                    self.commands.run_count,
                    self.settings.worker_commands,
                )
            )
            if ruling.decision is not RuleDecision.ASK or judge is CommandJudge.RULES:
                note_ruling(call, ruling)
                return ruling.decision is RuleDecision.ALLOW
        described = self.runtime.functions[call.tool].description
        return validate(self.model, self.request, earlier, call, described).allow


class SessionElement(LoopStep):
    """An agent of AgentSys as an element for AgentDojo's pipelines: each `query` is a session of its own.

    Args:
        model: The model behind all agents of the case.
        settings: The variant of AgentSys.
        book: The book that the tools' privileges are kept in.
    """

    def __init__(self, model: ChatModel, settings: AgentSysSettings, book: PrivilegeStore) -> None:
        self.model = model
        self.settings = settings
        self.privilege_store = book

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request until the model answers or its steps are used up."""
        session = AgentSession(self.model, self.settings, self.privilege_store, at.query, at.runtime, at.env)
        context = list(at.messages)
        with span("main") as opened:
            opened.messages = context  # The same list: the span holds the context however this ends.
            opened.decision = {"finished": self.converse(session, context)}
        return replace(at, messages=context)

    @abstractmethod
    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn; returns whether the model stopped by itself."""
