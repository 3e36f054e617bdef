"""Delegation: carries out tool calls for an agent that must not see the tools' outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatToolResultMessage

from agentsys.defense.call_trace import CallTrace, Entry, TracedCall
from agentsys.defense.extraction import fill
from agentsys.defense.failures import Failure, ends_subtask
from agentsys.defense.gate import Accepted
from agentsys.defense.intent import PARAMETER, Intent, NoIntent, parse_intent
from agentsys.defense.meter import OutOfCalls
from agentsys.defense.sanitizer import sanitize
from agentsys.defense.session import AgentSession
from agentsys.defense.settings import Repeats, Retry
from agentsys.defense.tool_errors import shown_error
from agentsys.defense.tool_turn import Arguments, ToolOutput, read_arguments, run_tool
from agentsys.defense.worker import Caller, Task, WorkerCallDenied, work
from agentsys.models.chat import tool_message
from agentsys.models.errors import ModelError
from agentsys.models.trace import span


def serve_turn(
    session: AgentSession, calls: Sequence[FunctionCall], agent: Caller
) -> list[ChatToolResultMessage]:
    """Carry out the calls of one turn in order; those beyond `calls_per_turn` are refused.

    Raises:
        WorkerCallDenied: If the validator refused a worker's call.
        OutOfCalls: If a worker's subtask has no model calls left.
        ModelError: If a model gave no reply.
    """
    most = session.settings.calls_per_turn
    served = [tool_message(call, serve(session, call, agent)) for call in calls[:most]]
    refused = Failure.BUDGET_EXHAUSTED.text(tool_ran=False)
    return [*served, *(tool_message(call, refused) for call in calls[most:])]


def serve(session: AgentSession, call: FunctionCall, agent: Caller) -> str:
    """Run a call and have a fresh worker read its output.

    Returns:
        What the caller may see: an accepted value or a failure as JSON, or the caller's own mistake.

    Raises:
        WorkerCallDenied, OutOfCalls, ModelError: As `serve_turn`.
    """
    if agent.depth >= session.settings.max_depth:
        return Failure.DEPTH_EXCEEDED.text(tool_ran=False)
    arguments = read_arguments(session.runtime, call)
    if isinstance(arguments, str):
        return arguments
    try:
        intent = parse_intent(call.args.get(PARAMETER))
    except NoIntent as mistake:
        return Failure.NO_INTENT.text(tool_ran=False, message=str(mistake))
    traced = TracedCall(call.function, arguments.read, intent, by_worker=not agent.is_main)
    if agent.is_main:
        return _serve_main(session, traced, arguments, agent)
    if not session.allows(session.settings.validator, traced, agent.trace, arguments.undeclared):
        raise WorkerCallDenied(traced)
    return _carried_out(session, traced, arguments, agent)


def _serve_main(session: AgentSession, call: TracedCall, arguments: Arguments, agent: Caller) -> str:
    """A call of the main agent: begins a subtask, and ends it where its model calls are used up."""
    session.begin_subtask()
    kept = session.settings.repeats is Repeats.KEPT
    if kept and (before := session.answers.get(call)) is not None:
        return before
    try:
        if not session.allows(session.settings.validate_main, call, agent.trace, arguments.undeclared):
            return Failure.DENIED.text(tool_ran=False)
    except OutOfCalls:
        return Failure.DENIED.text(tool_ran=False)
    text = _carried_out(session, call, arguments, agent)
    if kept:
        session.answers.put(call, text, only_read=session.reads(call.tool) and not session.commands.run)
    return text


def _carried_out(session: AgentSession, call: TracedCall, arguments: Arguments, agent: Caller) -> str:
    agent.trace.add(call)
    output = _output(session, call, arguments, agent)
    if output.error is not None:
        shown = shown_error(output.error, session.runtime.functions[call.tool], arguments.given)
        return Failure.TOOL_ERROR.text(tool_ran=True, **shown)
    outcome = _value(session, call, output, agent)
    if isinstance(outcome, Failure):
        return outcome.text(tool_ran=True)
    if agent.is_main:
        session.known.add(outcome.value)
    return outcome.text


def _output(session: AgentSession, call: TracedCall, arguments: Arguments, agent: Caller) -> ToolOutput:
    """Run the tool; a command that a worker given up had run already gives what it gave then."""
    if agent.is_main or not session.settings.judged or session.reads(call.tool):
        return run_tool(session.runtime, session.env, call.tool, arguments.given)
    output = session.commands.kept(call)
    if output is None:
        output = run_tool(session.runtime, session.env, call.tool, arguments.given)
        session.commands.ran(call, output)
    return output


def _value(session: AgentSession, call: TracedCall, output: ToolOutput, agent: Caller) -> Accepted | Failure:
    assert call.intent is not None
    filled = fill(output.value, call.intent, session.settings.fill)
    if filled.fields:
        with span("extraction", call.tool) as opened:
            opened.decision = {"fields": dict(filled.fields)}
    read: Accepted | Failure = Accepted({}, "{}")
    if filled.rest:
        task = Task(output.text, filled.rest, agent.depth + 1, call.tool, (*agent.path, call))
        read = _read_output(session, task, agent)
    if isinstance(read, Failure) or not filled.fields:
        return read
    return _merged(read, filled.fields, call.intent)


def _merged(read: Accepted, filled: Mapping[str, Any], intent: Intent) -> Accepted:
    """Both parts in the declared order; a worker's undeclared fields come last and replace nothing."""
    both = {**read.value, **filled}
    value = {name: both.pop(name) for name in intent if name in both} | both
    return replace(read, value=value, text=json.dumps(value, ensure_ascii=False))


def _read_output(session: AgentSession, task: Task, agent: Caller) -> Accepted | Failure:
    """Have a worker extract the fields; on a denial clean the output and start again with a fresh one."""
    try:
        return _extracted(session, task, agent)
    except OutOfCalls:
        if not agent.is_main:
            raise
        return Failure.BUDGET_EXHAUSTED
    except ModelError as error:
        if not ends_subtask(error):
            raise
        return Failure.WORKER_FAILED


def _extracted(session: AgentSession, task: Task, agent: Caller) -> Accepted | Failure:
    settings = session.settings
    if settings.sanitizes_first:
        cleaned = sanitize(session.model, task.raw, task.tool)
        if not cleaned.complete and not settings.judged:
            return Failure.WORKER_FAILED
        task = replace(task, raw=cleaned.text)
    given_up: Sequence[Entry] = ()
    for restart in range(settings.restarts + 1):
        trace, mark = agent.trace.branch(given_up), session.commands.mark()
        try:
            return _asked(session, task, trace, agent.trace)
        except WorkerCallDenied:
            session.commands.back_to(mark)
            given_up = trace.beyond(agent.trace)
            if restart < settings.restarts:
                task = replace(task, raw=sanitize(session.model, task.raw, task.tool).text)
    return Failure.DENIED


def _asked(session: AgentSession, task: Task, trace: CallTrace, above: CallTrace) -> Accepted | Failure:
    """Give a worker's outcome; with `gate_retry: fresh_context`, that of the first the gate lets pass."""
    fresh = session.settings.gate_retry is Retry.FRESH
    for _ in range(session.settings.gate_retries if fresh else 0):
        mark = session.commands.mark()
        outcome = work(session, task, trace, serve_turn)
        if outcome not in (Failure.INVALID_JSON, Failure.SCHEMA_MISMATCH):
            return outcome
        session.commands.back_to(mark)
        gone = trace.beyond(above)
        trace.calls[:] = above.branch(gone).calls
    return work(session, task, trace, serve_turn)
