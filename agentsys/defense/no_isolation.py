"""The no-isolation ablation (Table 3): one agent reads raw outputs, guarded by validator and sanitizer."""

from __future__ import annotations

from collections.abc import Mapping

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from agentsys.defense.call_trace import CallTrace, TracedCall
from agentsys.defense.failures import Failure
from agentsys.defense.meter import OutOfCalls
from agentsys.defense.sanitizer import sanitize
from agentsys.defense.session import AgentSession, SessionElement
from agentsys.defense.tool_turn import Arguments, next_message, read_arguments, run_tool
from agentsys.models.chat import text_of, tool_message

ROLE = "agent"


class GuardedAgent(SessionElement):
    """A plain tool-calling agent whose command calls are judged before they run (`isolation` is off)."""

    name = "agentsys_no_isolation"

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn, under the main agent's bounds."""
        trace = CallTrace()
        for step in range(session.settings.main_steps + 1):
            message, refused = _judged_step(session, context, trace)
            context.append(message)
            if not message["tool_calls"]:
                return True
            if step == session.settings.main_steps:
                break
            for place, call in enumerate(message["tool_calls"]):
                context.append(_answered(session, call, trace, refused.get(place)))
        return False


def _judged_step(
    session: AgentSession, context: list[ChatMessage], trace: CallTrace
) -> tuple[ChatAssistantMessage, Mapping[int, Failure]]:
    """The agent's next message and, by place, why some of its calls may not run.

    All calls of the message are judged before any runs. If one is denied, all tool results so far are
    cleaned and the agent is asked again, as often as the budget allows; the refused message is forgotten.
    """
    session.begin_subtask()
    message = next_message(session.main_model, ROLE, context, session.plain_tools)
    refused = _refused(session, message, trace)
    for _ in range(session.settings.restarts):
        if Failure.DENIED not in refused.values():
            break
        try:
            context[:] = [_cleaned(session, item) for item in context]
            message = next_message(session.model, ROLE, context, session.plain_tools)
        except OutOfCalls:
            break
        refused = _refused(session, message, trace)
    return message, refused


def _refused(session: AgentSession, message: ChatAssistantMessage, trace: CallTrace) -> Mapping[int, Failure]:
    earlier = trace.branch()
    refused: dict[int, Failure] = {}
    for place, call in enumerate(message["tool_calls"] or ()):
        arguments = read_arguments(session.runtime, call)
        if place >= session.settings.calls_per_turn:
            refused[place] = Failure.BUDGET_EXHAUSTED
        elif not isinstance(arguments, str):
            proposed = TracedCall(call.function, arguments.read, None)
            if _allowed(session, proposed, earlier, arguments):
                earlier.add(proposed)
            else:
                refused[place] = Failure.DENIED
    return refused


def _allowed(session: AgentSession, call: TracedCall, earlier: CallTrace, arguments: Arguments) -> bool:
    try:
        return session.allows(session.settings.validator, call, earlier, arguments.undeclared)
    except OutOfCalls:
        return False


def _cleaned(session: AgentSession, message: ChatMessage) -> ChatMessage:
    if message["role"] != "tool":
        return message
    tool = message["tool_call"].function
    error = message["error"]
    text = sanitize(session.model, text_of(message), tool).text
    error = sanitize(session.model, error, tool).text if error is not None else None
    return {**message, "content": [text_content_block_from_string(text)], "error": error}


def _answered(
    session: AgentSession, call: FunctionCall, trace: CallTrace, refused: Failure | None
) -> ChatToolResultMessage:
    arguments = read_arguments(session.runtime, call)
    if isinstance(arguments, str):
        return tool_message(call, arguments)
    if refused is not None:
        return tool_message(call, refused.text(tool_ran=False))
    trace.add(TracedCall(call.function, arguments.read, None))
    output = run_tool(session.runtime, session.env, call.function, arguments.given)
    return tool_message(call, output.text, output.error)
