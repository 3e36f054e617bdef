"""The worker (section 5.3): turns one raw output into the declared fields, in a context of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.defense.call_trace import TracedCall, one_line
from agentsys.defense.failures import Failure
from agentsys.defense.gate import Accepted, admit
from agentsys.defense.intent import Intent
from agentsys.defense.prompts import WORKER, WORKER_AGAIN, WORKER_SECTIONS
from agentsys.defense.sections import write_sections
from agentsys.defense.session import Session
from agentsys.defense.tool_turn import next_message, tool_message
from agentsys.models.chat import ToolSpec, system, text_of, user
from agentsys.models.trace import Span, span

ROLE = "worker"


class CallDenied(Exception):
    """The validator refused a call inside a worker; what the worker has done so far is thrown away."""

    def __init__(self, call: TracedCall) -> None:
        super().__init__(call.tool)
        self.call = call


Serve = Callable[[Session, FunctionCall, int], str]
"""Carries out a call for an agent at a depth and gives the text it may see. Raises `CallDenied`."""


@dataclass(frozen=True)
class Task:
    """What a worker is for: exactly what its context starts from, and where it stands in the tree."""

    raw: str
    intent: Intent
    depth: int
    """1 for a worker of the main agent."""
    tool: str
    """The tool whose output this is."""


def work(session: Session, task: Task, serve: Serve) -> str:
    """Extract the declared fields from an output.

    Returns:
        The accepted value or a failure, as JSON text.

    Raises:
        CallDenied: If the validator refused a call of this worker.
        ModelError: If the model gave no reply.
    """
    with span(ROLE, task.tool) as opened:
        opened.decision = {
            "depth": task.depth,
            "intent": dict(task.intent),
            "output_chars": len(task.raw),
        }
        try:
            outcome = _converse(session, task, serve, opened)
        except CallDenied as denied:
            opened.decision |= {"failure": Failure.DENIED.value, "denied_call": denied.call.as_data()}
            raise
        opened.decision |= _decision(session, outcome)
    return outcome.text


def _decision(session: Session, outcome: Accepted | Failure) -> dict[str, object]:
    if isinstance(outcome, Failure):
        return {"gate": None, "failure": outcome.value}
    return {"gate": session.settings.gate.value, "failure": None, "keys_dropped": outcome.dropped}


def _context(session: Session, task: Task) -> list[ChatMessage]:
    bodies = [one_line(dict(task.intent)), session.trace.as_json(), task.raw]
    return [system(WORKER), user(write_sections(WORKER_SECTIONS, bodies))]


def _converse(session: Session, task: Task, serve: Serve, opened: Span) -> Accepted | Failure:
    context = _context(session, task)
    tools: Sequence[ToolSpec] = session.tools if task.depth < session.settings.max_depth else ()
    refused: list[Failure] = []
    opened.messages = context  # The same list: the span holds the context however this ends.
    for _ in range(session.settings.worker_steps):
        message = next_message(session.model, ROLE, context, tools)
        context.append(message)
        calls = message["tool_calls"]
        if calls:
            for call in calls:
                context.append(tool_message(call, serve(session, call, task.depth)))
            continue
        outcome = admit(text_of(message), task.intent, session.settings.gate)
        if isinstance(outcome, Accepted) or len(refused) == session.settings.gate_retries:
            return outcome
        refused.append(outcome)
        context.append(user(WORKER_AGAIN[outcome.value]))
    return refused[-1] if refused else Failure.BUDGET_EXHAUSTED
