"""Delegation: carries out tool calls for an agent that must not see the tools' outputs.

Declared fields that code can fill in from a tool's own value come first: nobody has to read it for them.

Reading ahead: the first questions about the outputs of neighbouring reading calls are asked side by side.

The calls are tried on a copy of the environment, up to the first question to a model. Then they run in their turn as
they always do. A question that still is the same has its reply by then; any other is asked anew.
"""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatToolResultMessage
from pydantic import BaseModel

from agentsys.defense.agent_session import AgentSession, CallBudgetExceeded
from agentsys.defense.agentsys_settings import FillMode, GateRetry, RepeatPolicy
from agentsys.defense.gate import AcceptedValue, Failure, ends_subtask
from agentsys.defense.intent import INTENT_PARAMETER, Intent, NoIntent, parse_intent
from agentsys.defense.privileges import Privilege
from agentsys.defense.sanitizer import sanitize
from agentsys.defense.tool_turn import (
    CallTrace,
    CheckedArguments,
    ToolOutput,
    TracedCall,
    check_arguments,
    filter_tool_error,
    run_tool,
)
from agentsys.defense.worker import CallingAgent, WorkerCallDenied, WorkerTask, run_worker
from agentsys.models.chat import ChatReply, ChatRequest, ModelError, tool_message
from agentsys.models.trace import span
from agentsys.models.untrusted import ForeignFunction, Reader, TriableRuntime, Untrusted, has_closed_format

STATUS_ONLY: Intent = {"status": "string"}
"""Intent of a call that only acts."""
STATUS_LIST = [{"field": "status", "type": "string"}]
"""`STATUS_ONLY` in the list form that models are asked to write."""
DONE_STATUS = "done"


@dataclass(frozen=True)
class FilledFields:
    """Fields that code filled in, and those left for a worker."""

    fields: Mapping[str, Any]
    rest: Intent


def fill_fields(value: Untrusted[Any], intent: Intent, how: FillMode) -> FilledFields:
    """Fill declared fields by code, from a tool's value before it was written as text."""
    if how is FillMode.NONE:
        return FilledFields({}, intent)
    if intent == STATUS_ONLY:
        return FilledFields({"status": DONE_STATUS}, {})
    fields = _fill_typed(value.open_for(Reader.GATE), intent) if how is FillMode.TYPED else {}
    return FilledFields(fields, {name: kind for name, kind in intent.items() if name not in fields})


def _fill_typed(value: Any, intent: Intent) -> dict[str, Any]:
    """Fill fields of a closed type from a single value, or from a single record's fields of the same name.

    Free text is never filled in, nor anything out of a list: only a worker can tell which record is meant.
    """
    if isinstance(value, bool | int | float | datetime.date):
        if len(intent) == 1:
            ((name, kind),) = intent.items()
            return _fill_leaf(name, value, kind)
        return {}
    record = _fold_record(value)
    filled: dict[str, Any] = {}
    for name, kind in intent.items():
        values = record.get(_fold_name(name), ())
        if len(values) == 1:
            filled |= _fill_leaf(name, values[0], kind)
    return filled


def _fold_record(value: Any) -> dict[str, list[Any]]:
    """Map a record's folded field names to values; several values where names differ only by case or underscores."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    record: dict[str, list[Any]] = {}
    if isinstance(value, Mapping):
        for name, child in value.items():
            record.setdefault(_fold_name(str(name)), []).append(child)
    return record


def _fold_name(name: str) -> str:
    return name.replace("_", "").casefold()


def _fill_leaf(name: str, value: Any, kind: Any) -> dict[str, Any]:
    plain = value.value if isinstance(value, Enum) else value
    if isinstance(value, datetime.date | datetime.time):
        plain = value.isoformat()
    fits = {
        "string": isinstance(plain, str),
        "boolean": isinstance(plain, bool),
        "integer": isinstance(plain, int) and not isinstance(plain, bool),
        "number": isinstance(plain, int | float) and not isinstance(plain, bool),
    }
    if isinstance(plain, float) and not math.isfinite(plain):
        return {}
    closed = has_closed_format(value) and (plain is None or (isinstance(kind, str) and fits[kind]))
    return {name: plain} if closed else {}


def serve_turn(
    session: AgentSession, calls: Sequence[FunctionCall], agent: CallingAgent
) -> list[ChatToolResultMessage]:
    """Carry out the calls of one turn in order; those beyond `calls_per_turn` are refused.

    Raises:
        WorkerCallDenied: If the validator refused a worker's call.
        CallBudgetExceeded: If a worker's subtask has no model calls left.
        ModelError: If a model gave no reply.
    """
    limit = session.settings.calls_per_turn
    served: list[ChatToolResultMessage] = []
    asked_about = 0  # Number of calls whose first questions need not be asked ahead any more.
    for index, call in enumerate(calls[:limit]):
        if session.early is not None and index >= asked_about:
            asked_about = index + read_ahead(session, calls[index:limit], agent, serve_call)
        runs = session.run_count
        served.append(tool_message(call, serve_call(session, call, agent)))
        # Its worker has called tools: what is read from here on may have changed.
        if session.run_count > runs + 1:
            asked_about = index + 1
    refused = Failure.BUDGET_EXHAUSTED.as_text(tool_ran=False)
    return [*served, *(tool_message(call, refused) for call in calls[limit:])]


def serve_call(session: AgentSession, call: FunctionCall, agent: CallingAgent) -> str:
    """Run a call and have a fresh worker read its output.

    Returns:
        The text that the caller sees: an accepted value or a failure as JSON, or a message about its own mistake.
    """
    if agent.depth >= session.settings.max_depth:
        return agent.refuse(call.function, call.args, Failure.DEPTH_EXCEEDED.as_text(tool_ran=False))
    arguments = check_arguments(session.runtime, call)
    if isinstance(arguments, str):
        return agent.refuse(call.function, call.args, arguments)
    try:
        intent = parse_intent(call.args.get(INTENT_PARAMETER))
    except NoIntent as mistake:
        refusal = explain_missing_intent(mistake, call.function, arguments.raw)
        return agent.refuse(call.function, call.args, refusal)
    traced = TracedCall(call.function, arguments.parsed, intent, by_worker=not agent.is_main)
    if agent.is_main:
        return _serve_main_call(session, traced, arguments, agent)
    if not session.allows(session.settings.validator, traced, agent.trace):
        raise WorkerCallDenied(traced)
    return _carry_out(session, traced, arguments, agent)


def explain_missing_intent(mistake: NoIntent, tool: str, args: Mapping[str, Any]) -> str:
    """Build the error for a call without a valid intent, with a corrected example call."""
    example = json.dumps({**args, INTENT_PARAMETER: STATUS_LIST}, ensure_ascii=False, default=str)
    message = f"{mistake}; call {tool} again, for example with {example}"
    return Failure.NO_INTENT.as_text(tool_ran=False, message=message)


def _serve_main_call(
    session: AgentSession, call: TracedCall, arguments: CheckedArguments, agent: CallingAgent
) -> str:
    """Serve a call of the main agent as a subtask with a budget of its own."""
    session.begin_subtask()
    reuses_answers = session.settings.repeats is RepeatPolicy.KEPT
    if reuses_answers and (earlier := session.earlier_answers.get(call)) is not None:
        return earlier
    if not session.allows_within_budget(session.settings.validate_main, call, agent.trace):
        return agent.refuse(call.tool, call.args, Failure.DENIED.as_text(tool_ran=False))
    text = _carry_out(session, call, arguments, agent)
    if reuses_answers:
        session.earlier_answers.put(
            call, text, only_read=session.only_reads(call.tool) and not session.commands.run_count
        )
    return text


def _carry_out(
    session: AgentSession, call: TracedCall, arguments: CheckedArguments, agent: CallingAgent
) -> str:
    """Run an allowed call and return its answer, or its failure, as JSON text."""
    agent.trace.add(call)
    output = _run_or_recall(session, call, arguments, agent)
    if output.error is not None:
        shown = filter_tool_error(output.error, session.runtime.functions[call.tool], arguments.raw)
        return Failure.TOOL_ERROR.as_text(tool_ran=True, **shown)
    try:
        outcome = _answer_intent(session, call, output, agent)
    except CallBudgetExceeded:
        if not agent.is_main:
            raise
        outcome = Failure.BUDGET_EXHAUSTED
    except ModelError as error:
        if not ends_subtask(error):
            raise
        outcome = Failure.WORKER_FAILED
    return outcome.as_text(tool_ran=True) if isinstance(outcome, Failure) else outcome.text


def _run_or_recall(
    session: AgentSession, call: TracedCall, arguments: CheckedArguments, agent: CallingAgent
) -> ToolOutput:
    """Run the tool, or return the output of the same command if an abandoned worker already ran it."""
    session.run_count += 1
    if agent.is_main or not session.settings.has_judge or session.only_reads(call.tool):
        return run_tool(session.runtime, session.env, call.tool, arguments.raw)
    output = session.commands.find_output(call)
    if output is None:
        output = run_tool(session.runtime, session.env, call.tool, arguments.raw)
        session.commands.record_run(call, output)
    return output


def _answer_intent(
    session: AgentSession, call: TracedCall, output: ToolOutput, agent: CallingAgent
) -> AcceptedValue | Failure:
    """Fill the declared fields: by code where possible, the rest by a worker.

    Raises:
        CallBudgetExceeded: If the subtask has no model calls left.
        ModelError: If a model gave no reply.
    """
    assert call.intent is not None
    if not call.intent:
        return NOTHING_RETURNED
    if output.value.open_for(Reader.GATE) is None:
        # There is nothing to read, and a worker could only guess: every field but the status is null.
        done = {**dict.fromkeys(call.intent), "status": DONE_STATUS}
        return AcceptedValue(done, json.dumps(done))
    filled = fill_fields(output.value, call.intent, session.settings.fill)
    if filled.fields:
        with span("extraction", call.tool) as opened:
            opened.decision = {"fields": dict(filled.fields)}
    read: AcceptedValue | Failure = AcceptedValue({}, "{}")
    if filled.rest:
        task = WorkerTask(output.text, filled.rest, agent.depth + 1, call.tool, (*agent.path, call))
        read = _run_workers(session, task, agent.trace)
    if isinstance(read, Failure) or not filled.fields:
        return read
    # In the declared order; a worker's undeclared fields come last and replace nothing.
    both = {**read.value, **filled.fields}
    value = {name: both.pop(name) for name in call.intent if name in both} | both
    return replace(read, value=value, text=json.dumps(value, ensure_ascii=False))


_NOTHING = {"status": DONE_STATUS, "note": "intent named no field, so nothing else is returned"}
NOTHING_RETURNED = AcceptedValue(_NOTHING, json.dumps(_NOTHING))
"""The answer to a call whose intent names no field: the tool ran, and nobody has read its output."""

_GATE_REFUSALS = (Failure.INVALID_JSON, Failure.SCHEMA_MISMATCH, Failure.ECHOED_INTENT)


def _run_workers(session: AgentSession, task: WorkerTask, above: CallTrace) -> AcceptedValue | Failure:
    """Run fresh workers on an output until one succeeds or the retries are used up.

    After a denied call the output is sanitized and a new worker starts; with `gate_retry: fresh_context` a new
    worker also starts after a reply that the gate refused. `above` is the calling agent's trace.
    """
    settings = session.settings
    if settings.sanitizes_first:
        cleaned = sanitize(session.model, task.raw, task.tool)
        if not cleaned.complete and not settings.has_judge:
            return Failure.WORKER_FAILED
        task = replace(task, raw=cleaned.text)
    gate_retries = settings.gate_retries if settings.gate_retry is GateRetry.FRESH else 0
    trace, mark = above.branch(), session.commands.mark()
    for restart in range(settings.max_restarts + 1):
        if restart:
            task = replace(task, raw=sanitize(session.model, task.raw, task.tool).text)
        for retry in range(gate_retries + 1):
            try:
                outcome = run_worker(session, task, trace, serve_turn)
                if retry == gate_retries or outcome not in _GATE_REFUSALS:
                    return outcome
                denied = False
            except WorkerCallDenied:
                denied = True
            # This worker is abandoned: the next may repeat its commands and sees only the names of its calls.
            session.commands.rewind_to(mark)
            trace = above.branch(trace.list_new_calls(above))
            if denied:
                break
    return Failure.DENIED


ServeCall = Callable[[AgentSession, FunctionCall, CallingAgent], str]
"""Runs a call and has a worker read its output (`delegation.serve_call`, which imports this module)."""


class _FirstQuestion(Exception):
    """A tried call has come to its first question."""

    def __init__(self, request: ChatRequest) -> None:
        super().__init__(request.role)
        self.request = request


class _UnaskedModel:
    name = "unasked"

    def complete(self, request: ChatRequest) -> ChatReply:
        raise _FirstQuestion(request)


def read_ahead(
    session: AgentSession, calls: Sequence[FunctionCall], agent: CallingAgent, serve_call: ServeCall
) -> int:
    """Ask ahead about the outputs of the reading calls at the beginning of `calls`.

    Returns:
        The number of these calls.
    """
    readings = list(takewhile(lambda call: _may_try(session, call), calls))
    if session.early is not None and len(readings) > 1:
        for request in _list_first_questions(session, readings, agent, serve_call):
            session.early.ask(request)
    return len(readings)


def _may_try(session: AgentSession, call: FunctionCall) -> bool:
    """True if a call only reads, and its tool is a benchmark's: a tool of somebody else would run twice."""
    is_foreign = isinstance(session.runtime.functions.get(call.function), ForeignFunction)
    reads = session.early_labels.get(call.function) is Privilege.QUERY
    return isinstance(session.runtime, TriableRuntime) and reads and not is_foreign


def _list_first_questions(
    session: AgentSession, calls: Sequence[FunctionCall], agent: CallingAgent, serve_call: ServeCall
) -> list[ChatRequest]:
    assert isinstance(session.runtime, TriableRuntime)
    requests: list[ChatRequest] = []
    with session.runtime.try_on_copy(session.env) as env:
        trial = session.make_trial(_UnaskedModel(), env)
        trial_agent = CallingAgent(agent.depth, agent.trace.branch(), agent.path, Counter(agent.refusals))
        for call in calls:
            try:
                serve_call(trial, call, trial_agent)
            except _FirstQuestion as asked:
                requests.append(asked.request)
            except ModelError:  # The tools could not be sorted.
                break
    return requests
