"""The worker (section 5.3): extracts the declared fields from one raw output, in a context of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage

from agentsys.defense import prompts
from agentsys.defense.agent_session import AgentSession, CallBudgetExceeded
from agentsys.defense.agentsys_settings import GateRetry, TraceView, WorkerTools
from agentsys.defense.gate import NOT_AVAILABLE, AcceptedValue, Failure, check_reply, find_first_object
from agentsys.defense.intent import Intent
from agentsys.defense.tool_turn import CallTrace, TracedCall, ask_next_message, format_json_line
from agentsys.models.chat import JsonSchema, ModelError, ToolSpec, system, text_of, user
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import ReplyFlaw, Span, mark_reply_unreadable, span
from agentsys.models.untrusted import Reader, Untrusted

WORKER_ROLE = "worker"
MAX_REFUSALS = 3
"""Number of identical refusals of one call after which its agent is stopped as stuck."""
MAIN_DEPTH = 0
"""Depth of the main agent; its workers are at depth 1, their workers at 2."""


class WorkerCallDenied(Exception):
    """The validator refused a call inside a worker; the worker and its context are discarded."""

    def __init__(self, call: TracedCall) -> None:
        super().__init__(call.tool)
        self.call = call


@dataclass(frozen=True)
class CallingAgent:
    """An agent that makes calls: the main agent or a worker."""

    depth: int = MAIN_DEPTH
    trace: CallTrace = field(default_factory=CallTrace)
    """The calls that this agent may know of; its own are added."""
    path: tuple[TracedCall, ...] = ()
    """The calls that lead from the main agent to the output that this agent reads."""

    refusals: Counter[str] = field(default_factory=Counter)
    """Call and refusal, as JSON -> number of times."""

    @property
    def is_main(self) -> bool:
        """True for the main agent, False for a worker."""
        return self.depth == MAIN_DEPTH

    @property
    def is_stuck(self) -> bool:
        """True after MAX_REFUSALS identical refusals of one call."""
        return any(count >= MAX_REFUSALS for count in self.refusals.values())

    def refuse(self, tool: str, args: Mapping[str, Any], text: str) -> str:
        """Count a refused call and return `text`, its answer."""
        self.refusals[format_json_line([tool, args, text])] += 1
        return text


ServeTurn = Callable[[AgentSession, Sequence[FunctionCall], CallingAgent], list[ChatToolResultMessage]]
"""Serves an agent's calls and returns the messages it may see (`delegation.serve_turn`, which imports this
module). Raises `WorkerCallDenied`."""


@dataclass(frozen=True)
class WorkerTask:
    """Input of a worker, and its position in the tree of agents."""

    raw: Untrusted[str]
    intent: Intent
    depth: int
    """1 for a worker of the main agent."""
    tool: str
    """The tool whose output this is."""
    path: tuple[TracedCall, ...]
    """The calls that lead from the main agent to this output."""
    advice: str = ""
    """Further instructions about the output, for the worker's system message."""


def run_worker(
    session: AgentSession, task: WorkerTask, trace: CallTrace, serve_turn: ServeTurn
) -> AcceptedValue | Failure:
    """Run one worker on an output; the calls it makes are added to the trace.

    Raises:
        WorkerCallDenied: If the validator refused a call of this worker.
        CallBudgetExceeded: If no model call is left.
        ModelError: If the model gave no reply.
    """
    with span(WORKER_ROLE, task.tool) as opened:
        chars = len(task.raw.open_for(Reader.RECORD))
        opened.decision = {"depth": task.depth, "intent": dict(task.intent), "output_chars": chars}
        try:
            outcome = _converse(session, task, trace, serve_turn, opened)
        except WorkerCallDenied as denied:
            opened.decision |= {"failure": Failure.DENIED.value, "denied_call": denied.call.as_data()}
            raise
        except CallBudgetExceeded:
            opened.decision |= {"failure": Failure.BUDGET_EXHAUSTED.value}
            raise
        except ModelError as error:
            opened.decision |= {"failure": Failure.WORKER_FAILED.value, "model_error": error.kind.value}
            raise
        if isinstance(outcome, Failure):
            opened.decision |= {"gate": None, "failure": outcome.value}
        else:
            gate = session.settings.gate.value
            opened.decision |= {"gate": gate, "failure": None, "keys_dropped": outcome.dropped_keys}
            opened.decision |= {"echoed": outcome.echoed} if outcome.echoed else {}
    return outcome


def _build_context(
    session: AgentSession, task: WorkerTask, trace: CallTrace, *, may_call: bool
) -> list[ChatMessage]:
    shown = CallTrace(task.path) if session.settings.trace is TraceView.PATH else trace
    bodies = [format_json_line(dict(task.intent)), shown.as_json(), task.raw.open_for(Reader.QUARANTINE)]
    more = [*([prompts.WORKER_TOOLS] if may_call else []), *([task.advice] if task.advice else [])]
    rules = "\n\n".join([WORKER_CONTRACT.prompt, *more])
    return [system(rules), user(prompts.format_sections(prompts.WORKER_SECTIONS, bodies))]


def _converse(
    session: AgentSession, task: WorkerTask, trace: CallTrace, serve_turn: ServeTurn, opened: Span
) -> AcceptedValue | Failure:
    settings = session.settings
    tools, later = _offer_tools(session, task)
    context = _build_context(session, task, trace, may_call=bool(tools))
    agent = CallingAgent(task.depth, trace, task.path)
    retries = settings.gate_retries if settings.gate_retry is GateRetry.SAME else 0
    failures: list[Failure] = []
    incomplete: AcceptedValue | None = None  # The last accepted value that lacks fields.
    opened.messages = context  # The same list: the span holds the context however this ends.
    for _ in range(settings.worker_steps):
        form = build_schema(task.intent)
        message = ask_next_message(session.model, WORKER_ROLE, context, tools, form, runtime=session.runtime)
        context.append(message)
        if message["tool_calls"]:
            context += serve_turn(session, message["tool_calls"], agent)
            if agent.is_stuck:
                return incomplete or Failure.STUCK
            continue
        outcome = check_reply(text_of(message), task.intent, settings.gate)
        flaw = find_flaw(outcome, task.intent)
        if flaw is not None:
            mark_reply_unreadable(flaw)
        if isinstance(outcome, AcceptedValue):
            if not (later and lacks_value(outcome.value, task.intent)):
                return outcome
            incomplete, tools, later = outcome, later, ()
            context.append(user(prompts.WORKER_MISSING))
            continue
        if outcome is Failure.INFEASIBLE or len(failures) == retries:
            return incomplete or outcome
        failures.append(outcome)
        context.append(WORKER_CONTRACT.repair(flaw or ReplyFlaw.UNREAD))
    return incomplete or (failures[-1] if failures else Failure.BUDGET_EXHAUSTED)


def find_flaw(outcome: AcceptedValue | Failure, intent: Intent) -> ReplyFlaw | None:
    """Return the form error of a reply; None for a usable value or a declared failure."""
    if isinstance(outcome, AcceptedValue):
        return ReplyFlaw.ECHOED if outcome.value == intent or outcome.echoed else None
    return _FLAWS.get(outcome)


_FLAWS = {
    Failure.INVALID_JSON: ReplyFlaw.UNREAD,
    Failure.SCHEMA_MISMATCH: ReplyFlaw.WRONG_FORM,
    Failure.ECHOED_INTENT: ReplyFlaw.ECHOED,
}

WORKER_CONTRACT = ReplyContract(
    WORKER_ROLE,
    prompts.WORKER,
    prompts.WORKER_FORM,
    (
        (
            'INTENT: {"title": "string", "days_overdue": "integer", "authors": ["string"], "shelf": "string"}\n'
            'CALLS SO FAR: [{"tool": "find_loan", "args": {"number": "7"}}]\n'
            "TOOL OUTPUT:\n- title: Good Omens\n  written_by: Terry Pratchett; Neil Gaiman\n  overdue: 12 days",
            '{"title": "Good Omens", "days_overdue": 12, "authors": ["Terry Pratchett", "Neil Gaiman"], "shelf": null}',
        ),
    ),
    find_first_object,
    {
        ReplyFlaw.UNREAD: (
            "Your reply held no valid JSON object. Reply with one JSON object that has the fields of INTENT, and"
            " nothing else."
        ),
        ReplyFlaw.WRONG_FORM: (
            "Your object does not have the declared fields and types. Reply with one JSON object that has exactly"
            " the fields of INTENT, null where the output holds no value, and nothing else: no field named error."
        ),
        ReplyFlaw.ECHOED: (
            "Your object repeats the name of a type where the value belongs. Reply with one JSON object that has"
            " exactly the fields of INTENT, each with the value that stands in TOOL OUTPUT, null where it holds"
            " none, and nothing else."
        ),
    },
)
"""Form of a worker's reply; the gate decides which part of it passes."""


def build_schema(declared: Any) -> JsonSchema:
    """Build the JSON schema of a value with the declared fields, each of which may be null."""
    if isinstance(declared, str):
        return {"type": [declared, "null"]}
    if isinstance(declared, list):
        return {"type": "array", "items": build_schema(declared[0])}
    fields = {name: build_schema(kind) for name, kind in declared.items()}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _offer_tools(session: AgentSession, task: WorkerTask) -> tuple[Sequence[ToolSpec], Sequence[ToolSpec]]:
    """Return the tools offered from the start, and those offered once a field is missing."""
    choice = session.settings.worker_tools
    if task.depth >= session.settings.max_depth or choice is WorkerTools.NEVER:
        return (), ()
    return (session.tools, ()) if choice is WorkerTools.ALWAYS else ((), session.reading_tools)


def lacks_value(value: object, declared: object) -> bool:
    """True if any declared leaf is null or begins with "Not Available"."""
    if isinstance(declared, dict):
        return not isinstance(value, dict) or any(
            lacks_value(value.get(key), below) for key, below in declared.items()
        )
    if isinstance(declared, list):
        return not isinstance(value, list) or any(lacks_value(item, declared[0]) for item in value)
    return value is None or (isinstance(value, str) and value.startswith(NOT_AVAILABLE))
