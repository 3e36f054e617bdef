"""`LoopStep`, what our elements of AgentDojo's pipelines are made of, and `ModelElement`, which asks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel, ChatRequest
from agentsys.models.tools import tool_specs

QueryResult = tuple[str, FunctionsRuntime, TaskEnvironment, Sequence[ChatMessage], dict[str, Any]]


@dataclass(frozen=True)
class LoopState:
    """What one element of a pipeline hands on to the next."""

    query: str
    runtime: FunctionsRuntime
    env: TaskEnvironment
    messages: Sequence[ChatMessage]
    extra: dict[str, Any]
    """Whatever elements have to tell each other."""

    def with_messages(self, *messages: ChatMessage) -> LoopState:
        """The state with more messages at the end of its conversation."""
        return replace(self, messages=[*self.messages, *messages])

    def run_element(self, element: BasePipelineElement) -> LoopState:
        """The state that another element makes of this one.

        Raises:
            Exception: What the element raises.
        """
        return LoopState(*element.query(self.query, self.runtime, self.env, self.messages, self.extra))


class LoopStep(BasePipelineElement):  # type: ignore[misc]
    """An element that makes of one state the next one."""

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Make the step as AgentDojo asks for it."""
        after = self.step(LoopState(query, runtime, env, messages, extra_args or {}))
        return after.query, after.runtime, after.env, after.messages, after.extra

    @abstractmethod
    def step(self, at: LoopState) -> LoopState:
        """Make the step; the state given, and what it holds, stays as it is but for the environment."""


class ModelElement(LoopStep):
    """Asks a chat model with the conversation so far and the runtime's tools, and appends its reply.

    Args:
        model: The model to ask.
        role: The role the calls are booked under.
    """

    def __init__(self, model: ChatModel, role: str = "agent") -> None:
        self.model = model
        self.role = role
        self.name = model.name

    def step(self, at: LoopState) -> LoopState:
        """One model call, as AgentDojo's pipeline elements make it."""
        request = ChatRequest(at.messages, tool_specs(at.runtime.functions.values()), self.role)
        return at.with_messages(self.model.complete(request).message)
