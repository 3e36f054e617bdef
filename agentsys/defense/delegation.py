"""Delegation: carries out one tool call for an agent that must not see the tool's output."""

from __future__ import annotations

from dataclasses import replace

from agentdojo.functions_runtime import FunctionCall

from agentsys.defense.call_trace import TracedCall
from agentsys.defense.failures import Failure
from agentsys.defense.intent import PARAMETER, parse_intent
from agentsys.defense.sanitizer import sanitize
from agentsys.defense.session import Session
from agentsys.defense.tool_turn import own_mistake, run_tool, without_intent
from agentsys.defense.worker import CallDenied, Task, work

MAIN_DEPTH = 0
"""The main agent's depth; its workers stand at 1, theirs at 2."""


def serve(session: Session, call: FunctionCall, depth: int) -> str:
    """Run a call and have a fresh worker read its output.

    Args:
        session: What the case's agents share.
        call: The call, with its intent among the arguments.
        depth: The calling agent's depth.

    Returns:
        What the caller may see: an accepted value or a failure as JSON, or the caller's own mistake.

    Raises:
        CallDenied: If the validator refused a worker's call.
        ModelError: If a model gave no reply.
    """
    if depth >= session.settings.max_depth:
        return Failure.DEPTH_EXCEEDED.text
    args = without_intent(call)
    mistake = own_mistake(session.runtime, call.function, args)
    if mistake is not None:
        return mistake
    intent = parse_intent(call.args.get(PARAMETER))
    if intent is None:
        return Failure.NO_INTENT.text
    traced = TracedCall(call.function, args, intent)
    if not _permitted(session, traced, depth):
        if depth == MAIN_DEPTH:
            return Failure.DENIED.text
        raise CallDenied(traced)
    session.trace.add(traced)
    output = run_tool(session.runtime, session.env, call.function, args)
    if output.error is not None:
        return Failure.TOOL_ERROR.text
    return read_output(session, Task(output.text, intent, depth + 1, call.function))


def _permitted(session: Session, call: TracedCall, depth: int) -> bool:
    settings = session.settings
    if not settings.validator or (depth == MAIN_DEPTH and not settings.validate_main):
        return True
    return session.allows(call)


def read_output(session: Session, task: Task) -> str:
    """Have a worker extract the fields; on a denial clean the output and start again with a fresh one.

    Returns:
        The accepted value or a failure, as JSON text.
    """
    settings = session.settings
    if settings.sanitizes_first:
        cleaned = sanitize(session.model, task.raw, task.tool)
        if not cleaned.complete:  # Nothing else stands behind the sanitizer here.
            return Failure.WORKER_FAILED.text
        task = replace(task, raw=cleaned.text)
    restarts = settings.sanitize_budget if settings.sanitizer else 0
    for restart in range(restarts + 1):
        try:
            return work(session, task, serve)
        except CallDenied:
            if restart < restarts:
                task = replace(task, raw=sanitize(session.model, task.raw, task.tool).text)
    return Failure.DENIED.text
