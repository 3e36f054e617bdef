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

from agentsys.defense.agent_session import AgentSession, OutOfCalls, SessionElement
from agentsys.defense.call_trace import CallTrace, TracedCall
from agentsys.defense.gate import Failure
from agentsys.defense.sanitizer import sanitize
from agentsys.defense.tool_turn import ask_next_message, check_arguments, run_tool
from agentsys.models.chat import text_of, tool_message
from agentsys.models.untrusted import Reader, Untrusted

GUARDED_AGENT_ROLE = "agent"


class GuardedAgent(SessionElement):
    """A plain tool-calling agent whose command calls are judged before they run (`isolation` is off)."""

    name = "agentsys_no_isolation"

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn, under the main agent's bounds."""
        trace = CallTrace()
        for step in range(session.settings.main_steps + 1):
            message, refused = _ask_judged_message(session, context, trace)
            context.append(message)
            if not message["tool_calls"]:
                return True
            if step == session.settings.main_steps:
                break
            for place, call in enumerate(message["tool_calls"]):
                context.append(_run_call(session, call, trace, refused.get(place)))
        return False


def _ask_judged_message(
    session: AgentSession, context: list[ChatMessage], trace: CallTrace
) -> tuple[ChatAssistantMessage, Mapping[int, Failure]]:
    """The agent's next message and, by place, why some of its calls may not run.

    All calls of the message are judged before any runs. If one is denied, all tool results so far are
    cleaned and the agent is asked again, as often as the budget allows; the refused message is forgotten.
    """
    session.begin_subtask()
    message = ask_next_message(session.main_model, GUARDED_AGENT_ROLE, context, session.plain_tools)
    refused = _find_refusals(session, message, trace)
    for _ in range(session.settings.max_restarts):
        if Failure.DENIED not in refused.values():
            break
        try:
            context[:] = [_sanitize_result(session, item) for item in context]
            message = ask_next_message(session.model, GUARDED_AGENT_ROLE, context, session.plain_tools)
        except OutOfCalls:
            break
        refused = _find_refusals(session, message, trace)
    return message, refused


def _find_refusals(
    session: AgentSession, message: ChatAssistantMessage, trace: CallTrace
) -> Mapping[int, Failure]:
    earlier = trace.branch()
    refused: dict[int, Failure] = {}
    for place, call in enumerate(message["tool_calls"] or ()):
        arguments = check_arguments(session.runtime, call)
        if place >= session.settings.calls_per_turn:
            refused[place] = Failure.BUDGET_EXHAUSTED
        elif not isinstance(arguments, str):
            proposed = TracedCall(call.function, arguments.parsed, None)
            judge = session.settings.validator
            if session.allows_within_budget(judge, proposed, earlier):
                earlier.add(proposed)
            else:
                refused[place] = Failure.DENIED
    return refused


def _sanitize_result(session: AgentSession, message: ChatMessage) -> ChatMessage:
    if message["role"] != "tool":
        return message
    tool = message["tool_call"].function
    error = message["error"]
    text = _show(sanitize(session.model, Untrusted(text_of(message)), tool).text)
    error = _show(sanitize(session.model, Untrusted(error), tool).text) if error is not None else None
    return {**message, "content": [text_content_block_from_string(text)], "error": error}


def _run_call(
    session: AgentSession, call: FunctionCall, trace: CallTrace, refused: Failure | None
) -> ChatToolResultMessage:
    arguments = check_arguments(session.runtime, call)
    if isinstance(arguments, str):
        return tool_message(call, arguments)
    if refused is not None:
        return tool_message(call, refused.as_text(tool_ran=False))
    trace.add(TracedCall(call.function, arguments.parsed, None))
    output = run_tool(session.runtime, session.env, call.function, arguments.raw)
    error = None if output.error is None else _show(output.error.text)
    return tool_message(call, _show(output.text), error)


def _show(foreign: Untrusted[str]) -> str:
    """What the agent reads of a tool: all of it, for nothing is isolated here."""
    return foreign.open_for(Reader.AGENT)
