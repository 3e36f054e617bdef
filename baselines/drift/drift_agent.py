"""`DriftAgent`: plan, isolate, ask, check and run, turn by turn; replies of the actor are read here too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentdojo.ast_utils import ASTParsingError, parse_tool_calls_from_python_function
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models import prompted_tools
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys.models.pipeline_elements import LoopState, LoopStep, ToolsElement, tool_specs
from agentsys.models.providers.wire_parts import read_visible_text
from agentsys.models.trace import mark_reply_unreadable, span
from baselines.drift import drift_plan
from baselines.drift.drift_validator import VALIDATOR_SPAN, Validator, align_checklist, format_checklist
from baselines.drift.injection_isolator import isolate_results
from baselines.drift.prompts import ACTOR, GUIDELINES, REFUSED_REPEAT, RETRY, STOPPED

CALL_OPENING = f"<{prompted_tools.CALL}>"
"""A reply without this is an answer and ends the run."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING = {"None", "null"}  # The reference's repair makes `None` a call of a tool named `on`.


@dataclass(frozen=True)
class ActorReply:
    """An actor's reply."""

    text: str
    """The three sections; text outside them is not kept."""
    calls: tuple[FunctionCall, ...]


def read_actor_reply(text: str, *, parse_first: bool) -> ActorReply:
    """Read a reply; with `parse_first`, calls are repaired only if they cannot be read as they are.

    Raises:
        CallSyntaxError: If they cannot be read either way.
    """
    body = prompted_tools.find_text_between_tags(text, prompted_tools.CALL)
    calls = _read_calls("[]" if body is None else body, parse_first)
    thought, answer = (
        prompted_tools.find_text_between_tags(text, prompted_tools.THOUGHT) or "",
        prompted_tools.find_text_between_tags(text, prompted_tools.ANSWER) or "",
    )
    return ActorReply(prompted_tools.write_reply(thought, body or "", answer), tuple(calls))


def _read_calls(body: str, parse_first: bool) -> list[FunctionCall]:
    if parse_first:
        if body.strip() in _NOTHING:
            return []
        try:
            return prompted_tools.read_calls(body)
        except prompted_tools.CallSyntaxError:
            # Say, a tool named without parentheses. A list that was cut off is not to be guessed at.
            if not (body.strip().startswith("[") and body.strip().endswith("]")):
                raise
    try:
        calls: list[FunctionCall] = parse_tool_calls_from_python_function(repair_calls(body))
        json.dumps([call.args for call in calls], default=str)  # a number in hex may be too long to be stored
    # agentdojo 0.1.35 lets IndexError, TypeError and the Python parser's own errors through.
    except (ASTParsingError, ValueError, TypeError, IndexError, RecursionError, MemoryError) as error:
        raise prompted_tools.CallSyntaxError(str(error) or type(error).__name__) from None
    for call in calls:
        call.args = {name: "..." if value is Ellipsis else value for name, value in call.args.items()}
    return calls


def repair_calls(body: str) -> str:
    """Repair as the reference does: the ends cut off, split at every comma, lone names made calls.

    It alters arguments with commas in them. Names are ASCII, as in the reference's pattern: a word such as
    `rösti` between two commas of a message is none.
    """
    pieces = [piece.strip() for piece in body.strip()[1:-1].split(",")]
    return f"[{', '.join(f'{piece}()' if _NAME.fullmatch(piece) else piece for piece in pieces)}]"


ROLE = "agent"


class DriftAgent(LoopStep):
    """The whole agent as one element; everything it remembers of a task lives in one call of `query`."""

    name = "drift_agent"

    def __init__(
        self,
        model: ChatModel,
        settings: drift_plan.DriftSettings,
        environment: str,
        book: drift_plan.PermissionCache,
    ) -> None:
        self.model, self.settings, self.environment, self.book = model, settings, environment, book
        self.executor = ToolsElement()

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request until a reply has no calls or the limits are met."""
        env, tools = at.env, tool_specs(at.runtime.functions.values())
        permissions = self._load_permissions(tools)
        task = _DriftTask(self.model, self.settings, self.environment, at.query, tools, permissions)
        task.plan_task()
        turn = task.run_turn(at.messages)
        for _ in range(self.settings.max_rounds):
            last = turn.messages[-1]
            # Reference: the loop goes on after any message that holds the refusal's mark.
            refused = drift_plan.REFUSAL_MARK in text_of(last) if self.settings.compat else turn.refused
            if not (refused or (last["role"] == "assistant" and last["tool_calls"])):
                break
            _, _, env, messages, _ = self.executor.query(at.query, at.runtime, env, turn.messages)
            turn = task.run_turn(messages)
        # AgentDojo's scoring wants an assistant's message at the end.
        end = [] if turn.messages[-1]["role"] == "assistant" else [assistant(STOPPED, [])]
        return replace(at, env=env, messages=[*turn.messages, *end])

    def _load_permissions(self, tools: Sequence[ToolSpec]) -> Mapping[str, drift_plan.ToolPermission]:
        compat = self.settings.compat
        if compat and not self.settings.dynamic_validation:
            return {}
        configured = self.settings.permissions
        open_tools = [tool for tool in tools if tool.name not in configured]
        asked = self.book.load_permissions(self.model, open_tools, compat=compat)
        known = {tool.name: configured.get(tool.name) or asked[tool.name] for tool in tools}
        with span(drift_plan.PERMISSION_ROLE) as opened:
            opened.decision = {"permissions": {name: kind.value for name, kind in known.items()}}
        return known


@dataclass(frozen=True)
class ActorTurn:
    """The conversation after a reply of the actor."""

    messages: list[ChatMessage]
    refused: bool = False
    """True if the turn ends with a refusal."""


@dataclass
class _DriftTask:
    model: ChatModel
    settings: drift_plan.DriftSettings
    environment: str
    query: str
    tools: list[ToolSpec]
    permissions: Mapping[str, drift_plan.ToolPermission]
    progress: drift_plan.PlanProgress = field(default_factory=drift_plan.PlanProgress)
    first_plan: tuple[str, ...] = ()

    def plan_task(self) -> None:
        """Plan, before anything is seen."""
        if not self.settings.build_constraints:
            return
        # Reference: an unreadable reply is taken as it is.
        retries = 0 if self.settings.compat else 1
        self.progress = plan = drift_plan.make_drift_plan(
            self.model, self.query, self.tools, self.environment, retries
        )
        self.first_plan = plan.plan
        # Reference: the checklist is rewritten each turn; plan and checklist drift apart.
        if not self.settings.compat and plan.checklist != drift_plan.NO_CHECKLIST:
            text = format_checklist(self.model, self.query, plan.checklist, self.settings)
            checklist = align_checklist(text or plan.checklist, plan.plan)
            self.progress = replace(plan, checklist=checklist)

    def run_turn(self, messages: Sequence[ChatMessage]) -> ActorTurn:
        """Isolate what is new, ask the actor, and check what it wants to call."""
        stored = shown = list(messages)
        if self.settings.injection_isolation:
            stored, shown = isolate_results(self.model, self.settings, self.query, messages)
        outgoing = [system(self._build_instructions()), *shown]
        text = self._ask_actor(outgoing)
        if not self.tools or CALL_OPENING not in text or len(outgoing) > self.settings.message_cap:
            return ActorTurn([*stored, assistant(text, [])])
        reply = self._read_until_valid(text, outgoing)
        calls = [  # with ids that are the same in every run
            FunctionCall(function=call.function, args=dict(call.args), id=f"call_{len(stored)}_{position}")
            for position, call in enumerate(reply.calls)
        ]
        batch = [call for call in calls if not self._is_repeat(call, stored)]
        refusal = self._find_refusal(calls, batch)
        if refusal is not None:
            quoted = {"calls": drift_plan.format_calls(refusal.calls), "query": self.query, **refusal.facts}
            words = user(refusal.template.format(mark=drift_plan.REFUSAL_MARK, **quoted))
            return ActorTurn([*stored, assistant(reply.text, []), words], refused=True)
        return ActorTurn([*stored, assistant(reply.text, batch)])

    def _build_instructions(self) -> str:
        parts = [ACTOR, prompted_tools.write_tools(self.tools), self.environment]
        plan, achieved = list(self.progress.plan), list(self.progress.achieved)
        if plan:
            checklist = self.progress.checklist
            parts.append(
                GUIDELINES.format(plan=plan, checklist=checklist, achieved=achieved, query=self.query)
            )
        return "\n\n".join(parts)

    def _ask_actor(self, messages: Sequence[ChatMessage]) -> str:
        return read_visible_text(self.model.complete(ChatRequest(messages, role=ROLE)).message)

    def _read_until_valid(self, first: str, outgoing: Sequence[ChatMessage]) -> ActorReply:
        """Read the reply, asked for again where its calls cannot be; at last, the first without calls."""
        latest = first
        for attempt in range(self.settings.parse_attempts):
            try:
                return read_actor_reply(latest, parse_first=not self.settings.compat)
            except prompted_tools.CallSyntaxError as error:
                mark_reply_unreadable()
                if attempt + 1 < self.settings.parse_attempts:
                    latest = self._ask_actor([*outgoing, user(RETRY.format(error=error))])
        return ActorReply(first, ())

    def _is_repeat(self, call: FunctionCall, messages: Sequence[ChatMessage]) -> bool:
        # Reference: any repeated call is left out, and one alone ends the run without a word.
        if not self.settings.compat and self.permissions.get(call.function) is drift_plan.ToolPermission.READ:
            return False
        earlier = [m["tool_calls"] or () for m in messages if m["role"] == "assistant"]
        wanted = call.function, drift_plan.format_args(call)
        return any(
            (other.function, drift_plan.format_args(other)) == wanted for calls in earlier for other in calls
        )

    def _find_refusal(
        self, calls: Sequence[FunctionCall], batch: Sequence[FunctionCall]
    ) -> drift_plan.DriftRefusal | None:
        """Return why the batch is refused, or None; an accepted batch counts as achieved from then on."""
        settings = self.settings
        if calls and not batch and not settings.compat:
            repeated = drift_plan.DriftRefusal("repeat", REFUSED_REPEAT, calls=calls)
            with span(VALIDATOR_SPAN) as opened:
                opened.decision = {
                    "calls": drift_plan.build_call_data(calls),
                    "refusal": repeated.make_decision_data(),
                }
            return repeated
        has_rules = settings.dynamic_validation or settings.build_constraints
        if not (settings.compat or (batch and has_rules)):
            return None
        validator = Validator(self.model, settings, self.query, self.permissions, self.first_plan)
        checked = validator.check_batch(self.progress, batch)
        self.progress = checked.progress
        return checked.refusal
