"""The agent: plans once, then turn by turn isolates, acts and validates, until there is nothing to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys.models.pipeline_elements import LoopState, LoopStep, ToolsElement, tool_specs
from agentsys.models.prompted_tools import CallSyntaxError, write_tools
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import span
from baselines.drift import permission
from baselines.drift.checklist import align_checklist, format_checklist
from baselines.drift.fixes import DriftFix
from baselines.drift.isolator import isolate_results
from baselines.drift.permission import ToolPermission, PermissionCache
from baselines.drift.plan import NO_CHECKLIST, DriftPlan, make_drift_plan
from baselines.drift.progress import PlanProgress
from baselines.drift.prompts import ACTOR, GUIDELINES, RETRY, STOPPED
from baselines.drift.refusal import REFUSAL_MARK, DriftRefusal, RepeatedCalls, calls_as_data
from baselines.drift.reply import CALL_OPENING, ActorReply, was_made_before, number_calls, read_actor_reply
from baselines.drift.settings import DriftSettings
from baselines.drift.validator import VALIDATOR_SPAN, Validator

ROLE = "agent"


class DriftAgent(LoopStep):
    """The whole agent as one element; everything it remembers of a task lives in one call of `query`."""

    name = "drift_agent"

    def __init__(
        self, model: ChatModel, settings: DriftSettings, environment: str, book: PermissionCache
    ) -> None:
        self.model = model
        self.settings = settings
        self.environment = environment
        self.book = book
        self.executor = ToolsElement()

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request until a reply has no calls or the limits are met.

        Raises:
            ModelError: If a model gave no reply.
        """
        env, tools = at.env, tool_specs(at.runtime.functions.values())
        task = _DriftTask(self.model, self.settings, self.environment, at.query, tools, {})
        task.plan_task(self._load_permissions(tools))
        turn = task.run_turn(at.messages)
        for _ in range(self.settings.max_rounds):
            if not has_next_turn(turn, self.settings):
                break
            _, _, env, messages, _ = self.executor.query(at.query, at.runtime, env, turn.messages)
            turn = task.run_turn(messages)
        return replace(at, env=env, messages=_end_with_assistant(turn.messages))

    def _load_permissions(self, tools: Sequence[ToolSpec]) -> Mapping[str, ToolPermission]:
        if not self.settings.dynamic_validation and DriftFix.TELL_REPEATS not in self.settings.fixes:
            return {}
        given = self.settings.permissions
        open_tools = [tool for tool in tools if tool.name not in given]
        strictly = DriftFix.READ_VERDICTS_STRICTLY in self.settings.fixes
        asked = self.book.load_permissions(self.model, open_tools, strictly=strictly)
        known = {tool.name: given.get(tool.name) or asked[tool.name] for tool in tools}
        with span(permission.PERMISSION_ROLE) as opened:
            opened.decision = {"permissions": {name: kind.value for name, kind in known.items()}}
        return known


@dataclass(frozen=True)
class ActorTurn:
    """The conversation after a reply of the actor."""

    messages: list[ChatMessage]
    refused: bool = False
    """Whether it ends with a refusal."""


@dataclass
class _DriftTask:
    """One task on its way."""

    model: ChatModel
    settings: DriftSettings
    environment: str
    query: str
    tools: list[ToolSpec]
    permissions: Mapping[str, ToolPermission]
    progress: PlanProgress = field(default_factory=PlanProgress)
    first_plan: DriftPlan = field(default_factory=DriftPlan)

    def plan_task(self, permissions: Mapping[str, ToolPermission]) -> None:
        """Plan, before anything is seen."""
        self.permissions = permissions
        if not self.settings.build_constraints:
            return
        self.first_plan = plan = make_drift_plan(self.model, self.query, self.tools, self.environment)
        checklist = plan.checklist
        if DriftFix.FORMAT_ONCE in self.settings.fixes and checklist != NO_CHECKLIST:
            text = format_checklist(self.model, self.query, checklist, self.settings.format_attempts)
            checklist = align_checklist(text or checklist, plan.trajectory)
        self.progress = PlanProgress(plan.trajectory, (), checklist)

    def run_turn(self, messages: Sequence[ChatMessage]) -> ActorTurn:
        """Isolate what is new, ask the actor, and check what it wants to call."""
        stored = shown = list(messages)
        if self.settings.injection_isolation:
            stored, shown = isolate_results(self.model, self.settings, self.query, messages)
        outgoing = [system(self._write_instructions()), *shown]
        said = self._ask_actor(outgoing)
        if not self.tools or CALL_OPENING not in said or len(outgoing) > self.settings.message_cap:
            return ActorTurn([*stored, assistant(said, [])])
        reply = self._read_until_valid(said, outgoing)
        calls = number_calls(reply.calls, len(stored))
        batch = [call for call in calls if not self._is_repeat(call, stored)]
        refusal = self._find_refusal(calls, batch)
        if refusal is not None:
            return ActorTurn(
                [*stored, assistant(reply.text, []), user(refusal.write_refusal(self.query))], refused=True
            )
        return ActorTurn([*stored, assistant(reply.text, batch)])

    def _write_instructions(self) -> str:
        """Built anew for each turn: the plan may have grown."""
        parts = [ACTOR, write_tools(self.tools), self.environment]
        if self.progress.plan:
            parts.append(
                GUIDELINES.format(
                    plan=list(self.progress.plan),
                    checklist=self.progress.checklist,
                    achieved=list(self.progress.achieved),
                    query=self.query,
                )
            )
        return "\n\n".join(parts)

    def _ask_actor(self, messages: Sequence[ChatMessage]) -> str:
        return visible_text(self.model.complete(ChatRequest(messages, role=ROLE)).message)

    def _read_until_valid(self, said: str, outgoing: Sequence[ChatMessage]) -> ActorReply:
        """The reply, asked for again where its calls cannot be read; at last, the first one without calls."""
        parse_first = DriftFix.PARSE_BEFORE_REPAIR in self.settings.fixes
        latest = said
        for attempt in range(self.settings.parse_attempts):
            try:
                return read_actor_reply(latest, parse_first=parse_first)
            except CallSyntaxError as error:
                if attempt + 1 < self.settings.parse_attempts:
                    latest = self._ask_actor([*outgoing, user(RETRY.format(error=error))])
        return ActorReply(said, ())

    def _is_repeat(self, call: FunctionCall, messages: Sequence[ChatMessage]) -> bool:
        reads = self.permissions.get(call.function) is ToolPermission.READ
        if reads and DriftFix.TELL_REPEATS in self.settings.fixes:
            return False
        return was_made_before(call, messages)

    def _has_rules(self) -> bool:
        return self.settings.dynamic_validation or self.settings.build_constraints

    def _find_refusal(self, calls: Sequence[FunctionCall], batch: Sequence[FunctionCall]) -> DriftRefusal | None:
        """Why the batch may not run, if so; what is accepted counts as achieved from now on."""
        if calls and not batch and DriftFix.TELL_REPEATS in self.settings.fixes:
            repeated = RepeatedCalls(tuple(calls))
            with span(VALIDATOR_SPAN) as opened:
                opened.decision = {"calls": calls_as_data(calls), "refusal": repeated.decision_data()}
            return repeated
        if DriftFix.FORMAT_ONCE in self.settings.fixes and not (batch and self._has_rules()):
            return None
        validator = Validator(
            self.model, self.settings, self.query, self.permissions, self.first_plan.trajectory
        )
        checked = validator.check_batch(self.progress, batch)
        self.progress = checked.progress
        return checked.refusal


def has_next_turn(turn: ActorTurn, settings: DriftSettings) -> bool:
    """Whether there is one more turn: calls to run, or a refusal to answer."""
    last = turn.messages[-1]
    marked = REFUSAL_MARK in text_of(last)
    if turn.refused if DriftFix.FLAG_REFUSALS in settings.fixes else marked:
        return True
    return last["role"] == "assistant" and bool(last["tool_calls"])


def _end_with_assistant(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The conversation with an assistant's message at its end, as AgentDojo's scoring wants it."""
    return messages if messages[-1]["role"] == "assistant" else [*messages, assistant(STOPPED, [])]
