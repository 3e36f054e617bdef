"""The guard around an agent: `GuardedRuntime` before its tools, `GuardedModel` before its inner agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatAssistantMessage, text_content_block_from_string
from pydantic import BaseModel

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, text_of
from agentsys.models.trace import current_tracer, span
from baselines.middleware.guard import CallDecision, GuardSession, Screened, screen_value
from baselines.middleware.guard_settings import HANDLING_ORDER, Handling
from baselines.middleware.tool_policy import ArgumentRule, iterate_texts

MIDDLEWARE_SPAN = "middleware"


class GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]
    """Every call goes through the guard, whoever makes it: a plain loop, an inner agent, an interpreter.

    A refused call does not run. A value in whose texts nothing was found is handed on as it is; else as text.
    """

    def __init__(
        self,
        inner: FunctionsRuntime,
        session: GuardSession,
        tools: Mapping[str, Mapping[str, ArgumentRule]] | None,
    ) -> None:
        super().__init__(list(inner.functions.values()))
        self.inner = inner
        self.session = session
        self.tools = tools

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool if the guard allows it."""
        if function not in self.functions:
            unknown: tuple[Any, str | None] = super().run_function(env, function, kwargs, raise_on_error)
            return unknown
        # Calls inside arguments run here, so that they are guarded, too.
        args = self._execute_nested_calls(env, kwargs)
        decision = self.session.calls(function, _to_typed_plain_data(args), self.tools)
        if not decision.allowed:
            with span(MIDDLEWARE_SPAN, decision.tool) as node:
                node.decision = {
                    "what": "call",
                    "handling": decision.handling.value,
                    "score": decision.score,
                    "findings": [finding.as_data() for finding in decision.findings],
                    "args": _to_typed_plain_data(args),
                }
            if raise_on_error:
                raise ValueError(decision.reason)
            return "", decision.reason
        value, error = self.inner.run_function(env, function, args, raise_on_error)
        return self._screen_result(function, value, error, decision)

    def _screen_result(
        self, tool: str, value: Any, error: str | None, decision: CallDecision
    ) -> tuple[Any, str | None]:
        seen: list[Screened] = []

        def screen(text: str) -> Screened:
            seen.append(self.session.reads(text, tool))
            return seen[-1]

        shown_error = None if error is None else screen(error).text
        screened = [screen(text) for text in iterate_texts(value)]
        if not any(text.changed for text in screened):
            shown = value
        else:
            data = screen_value(_to_typed_plain_data(value), screen)
            # As AgentDojo would have written the value that it comes from.
            shown = str(yaml.safe_dump(data)).strip() if isinstance(value, BaseModel | list) else str(data)
            current_tracer().text_rewritten(tool_result_to_str(value), shown)
        unique = {one.original: one for one in seen if one.findings}
        strictest = max((one.handling for one in seen), key=HANDLING_ORDER.index, default=Handling.ALLOW)
        with span(MIDDLEWARE_SPAN, tool) as node:
            node.decision = {
                "what": "result",
                "handling": strictest.value,
                "score": max((one.score for one in seen), default=0.0),
                "texts": [screened_as_record(one) for one in unique.values()],
                "call_score": decision.score,
            }
        return shown, shown_error


def screened_as_record(screened: Screened) -> dict[str, Any]:
    """A screened text for the record; the original stands there whole where it was changed."""
    original = {"original": screened.original, "shown": screened.text} if screened.changed else {}
    return {
        "id": screened.id,
        "handling": screened.handling.value,
        "score": screened.score,
        "findings": [finding.as_data() for finding in screened.findings],
        **original,
    }


def _to_typed_plain_data(value: Any) -> Any:
    """Models as plain data, their types otherwise kept (a date stays a date)."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return {key: _to_typed_plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_typed_plain_data(item) for item in value]
    return value


NOT_AVAILABLE = "Not Available: "
"""Begins every replaced value in a returned object, as return gates expect it of a missing one."""


class GuardedModel:
    """A model whose replies in the roles of inner agents are screened for contagion, if they end its work.

    In a JSON object each text is screened by itself, so that the object keeps its form.
    """

    def __init__(self, model: ChatModel, roles: Sequence[str]) -> None:
        self.model = model
        self.roles = frozenset(roles)
        self.session: GuardSession | None = None
        """The conversation under way; set anew for each run of the pipeline."""

    @property
    def name(self) -> str:
        """The model's own name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request."""
        reply = self.model.complete(request)
        if self.session is None or request.role not in self.roles or reply.message["tool_calls"]:
            return reply
        return replace(reply, message=self._screen_message(reply.message, request.role, self.session))

    def _screen_message(
        self, message: ChatAssistantMessage, role: str, session: GuardSession
    ) -> ChatAssistantMessage:
        text = text_of(message)
        seen: list[Screened] = []

        def screen(part: str) -> Screened:
            seen.append(session.passes_on(part, f"return of {role}"))
            return seen[-1]

        shown = _replace_text(text, screen)
        with span(MIDDLEWARE_SPAN, f"return of {role}") as node:
            node.decision = {
                "what": "return",
                "texts": [screened_as_record(one) for one in seen if one.findings],
            }
        if shown == text:
            return message
        current_tracer().text_rewritten(text, shown)
        return {**message, "content": [text_content_block_from_string(shown)]}


def _replace_text(text: str, screen: Callable[[str], Screened]) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict | list):
        return screen(text).text

    def marked(part: str) -> Screened:
        screened = screen(part)
        return replace(screened, text=NOT_AVAILABLE + screened.text) if screened.changed else screened

    cleaned = screen_value(data, marked)
    return text if cleaned is data else json.dumps(cleaned, ensure_ascii=False)
