"""The no-isolation ablation (Table 3): one agent reads raw outputs, guarded by validator and sanitizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from agentsys.defense.call_trace import CallTrace, TracedCall
from agentsys.defense.failures import Failure
from agentsys.defense.privileges import PrivilegeBook
from agentsys.defense.sanitizer import sanitize
from agentsys.defense.session import Session
from agentsys.defense.settings import Settings
from agentsys.defense.tool_turn import next_message, own_mistake, run_tool, tool_message
from agentsys.models.chat import ChatModel, text_of
from agentsys.models.element import QueryResult
from agentsys.models.trace import span

ROLE = "agent"


class GuardedAgent(BasePipelineElement):  # type: ignore[misc]
    """A plain tool-calling agent whose command calls are judged before they run.

    Args:
        model: The model behind agent, validator and sanitizer.
        settings: The variant of AgentSys (`isolation` is off).
        book: Where the tools' privileges are kept.
    """

    name = "agentsys_no_isolation"

    def __init__(self, model: ChatModel, settings: Settings, book: PrivilegeBook) -> None:
        self.model = model
        self.settings = settings
        self.book = book

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Work on the user's request until the model answers or its steps are used up."""
        session = Session(self.model, self.settings, self.book, query, runtime, env)
        context = list(messages)
        with span("main") as opened:
            opened.messages = context
            opened.decision = {"finished": _converse(session, context)}
        return query, runtime, env, context, extra_args or {}


def _converse(session: Session, context: list[ChatMessage]) -> bool:
    for step in range(session.settings.main_steps + 1):
        message, refused = _judged_step(session, context)
        context.append(message)
        if not message["tool_calls"]:
            return True
        if step == session.settings.main_steps:
            break
        for place, call in enumerate(message["tool_calls"]):
            context.append(_answered(session, call, refused=place in refused))
    return False


def _judged_step(session: Session, context: list[ChatMessage]) -> tuple[ChatAssistantMessage, set[int]]:
    """The agent's next message and the places of its calls that may not run.

    All calls of the message are judged before any runs. If one is refused, all tool results so far are
    cleaned and the agent is asked again, as often as the budget allows; the refused message is forgotten.
    """
    restarts = session.settings.sanitize_budget if session.settings.sanitizer else 0
    message = next_message(session.model, ROLE, context, session.plain_tools)
    refused = _refused(session, message)
    while refused and restarts:
        restarts -= 1
        context[:] = [_cleaned(session, item) for item in context]
        message = next_message(session.model, ROLE, context, session.plain_tools)
        refused = _refused(session, message)
    return message, refused


def _refused(session: Session, message: ChatAssistantMessage) -> set[int]:
    earlier = CallTrace(list(session.trace.calls))
    refused = set()
    for place, call in enumerate(message["tool_calls"] or ()):
        if own_mistake(session.runtime, call.function, dict(call.args)) is not None:
            continue
        proposed = TracedCall(call.function, dict(call.args), None)
        if session.allows(proposed, earlier):
            earlier.add(proposed)
        else:
            refused.add(place)
    return refused


def _cleaned(session: Session, message: ChatMessage) -> ChatMessage:
    if message["role"] != "tool":
        return message
    tool = message["tool_call"].function
    error = message["error"]
    text = sanitize(session.model, text_of(message), tool).text
    error = sanitize(session.model, error, tool).text if error is not None else None
    return {**message, "content": [text_content_block_from_string(text)], "error": error}


def _answered(session: Session, call: FunctionCall, *, refused: bool) -> ChatToolResultMessage:
    if refused:
        return tool_message(call, Failure.DENIED.text)
    mistake = own_mistake(session.runtime, call.function, dict(call.args))
    if mistake is not None:
        return tool_message(call, mistake)
    session.trace.add(TracedCall(call.function, dict(call.args), None))
    output = run_tool(session.runtime, session.env, call.function, dict(call.args))
    return {**tool_message(call, output.text), "error": output.error}
