"""A model that plays each role from its own script, and small tools, for the defenses at the tool border."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatAssistantMessage, ChatMessage
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, Usage, assistant
from agentsys.models.pipeline_elements import LoopState, LoopStep
from agentsys.models.providers.wire_parts import read_result_text
from agentsys.models.trace import Span, Tracer, use_tracer
from baselines.tool_boundary.boundary_filter import BoundaryFilter, EndCase, FilterTurn, apply_to_results
from baselines.tool_boundary.result_rewriter import find_new_results


class FilterResults(LoopStep):
    """Has filters read the tool results of the latest turn, whoever ran the tools.

    Args:
        filters: The filters, each reading what the one before it left.
    """

    def __init__(self, filters: Sequence[BoundaryFilter]) -> None:
        self.filters = tuple(filters)

    def step(self, at: LoopState) -> LoopState:
        """Rewrite the latest results; earlier turns are not read again.

        Raises:
            AbortAgentError: If a filter ends the case.
            ModelError: If a filter's model gave no reply.
        """
        indexes, messages = find_new_results(at.messages), list(at.messages)
        if not indexes:
            return at
        turn = FilterTurn(at.query, at.runtime, messages[: indexes[0]])
        results = [message for message in messages[indexes[0] :] if message["role"] == "tool"]
        ended = None
        try:
            filtered = apply_to_results(self.filters, turn, results)
        except EndCase as end:
            filtered, ended = list(end.results), end
        for index, result in zip(indexes, filtered, strict=True):
            messages[index] = result
        if ended is not None:
            raise AbortAgentError(str(ended), messages, at.env)
        return replace(at, messages=messages)


Reply: TypeAlias = str | ChatAssistantMessage | Exception | Callable[[ChatRequest], str]


class RoleModel(ScriptedModel):
    """Repeats each role's last reply.

    Args:
        scripts: Role -> replies.
        completion: Tokens that each reply of a guard is said to have.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Any]], completion: int = 0) -> None:
        super().__init__(scripts, repeat=True)
        self.completion = completion
        self.logprobs: tuple[Mapping[str, float], ...] = ()

    def complete(self, request: ChatRequest) -> ChatReply:
        usage = Usage(completion=self.completion if request.role != "agent" else 0)
        return replace(super().complete(request), usage=usage, logprobs=self.logprobs)


def making(*made: tuple[str, dict[str, Any]]) -> ChatAssistantMessage:
    """An assistant message that makes these calls."""
    calls = [
        FunctionCall(function=name, args=dict(args), id=f"c{place}")
        for place, (name, args) in enumerate(made)
    ]
    return assistant(None, calls)


class Tools:
    """A reader, a writer that keeps what it was called with, and one that fails with words of its own."""

    def __init__(self, text: Any = "The meeting is at 10:00.") -> None:
        self.text = text
        self.sent: list[dict[str, Any]] = []
        self.runtime = FunctionsRuntime()
        for tool in (self._reader(), self._sender(), self._failing()):
            self.runtime.register_function(tool)

    def _reader(self) -> Callable[..., Any]:
        def read_note(name: str = "x") -> Any:
            """Reads a note.

            :param name: Which note.
            """
            return self.text

        return read_note

    def _sender(self) -> Callable[..., Any]:
        def send_note(to: str, body: str = "", urgent: bool = False) -> str:
            """Sends a note.

            :param to: The recipient.
            :param body: The text.
            :param urgent: Whether it is urgent.
            """
            self.sent.append({"to": to, "body": body, "urgent": urgent})
            return "sent"

        return send_note

    def _failing(self) -> Callable[..., Any]:
        def open_door() -> str:
            """Opens a door."""
            raise ValueError(f"no door; {self.text}")

        return open_door


def run(defense: Any, model: ChatModel, tools: Tools, query: str = "Tell me when.") -> list[ChatMessage]:
    """The conversation of one run."""
    pipeline = defense.pipeline(model, get_suite("v1.2.2", "banking"))
    return list(pipeline.query(query, tools.runtime)[3])


def traced(defense: Any, model: ChatModel, tools: Tools, query: str = "Tell me when.") -> list[Span]:
    """The spans of one run."""
    tracer = Tracer()
    with use_tracer(tracer):
        run(defense, model, tools, query)
    return tracer.spans


def decisions(spans: Sequence[Span], kind: str) -> list[dict[str, Any]]:
    """What spans of one kind decided."""
    return [span.decision for span in spans if span.kind == kind]


def results(messages: Sequence[ChatMessage]) -> list[str]:
    """What the agent read of each tool result."""
    return [read_result_text(message) for message in messages if message["role"] == "tool"]


def sanitized(text: str, *, safe: bool = False) -> str:
    """A Sanitizer's reply."""
    return json.dumps({"reasoning": "x", "was_safe": safe, "sanitized_output": text})


def minimized(**args: Any) -> str:
    """A Minimizer's reply."""
    return json.dumps({"reasoning": "x", "minimized_args": args})
