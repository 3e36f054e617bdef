"""`ModelElement`: a `ChatModel` as the element AgentDojo pipelines expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel, ChatRequest
from agentsys.models.tools import tool_specs

QueryResult = tuple[str, FunctionsRuntime, TaskEnvironment, Sequence[ChatMessage], dict[str, Any]]


class ModelElement(BasePipelineElement):  # type: ignore[misc]
    """Asks a chat model with the conversation so far and the runtime's tools, and appends its reply.

    Args:
        model: The model to ask.
        role: The role the calls are booked under.
    """

    def __init__(self, model: ChatModel, role: str = "agent") -> None:
        self.model = model
        self.role = role
        self.name = model.name

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """One model call, as AgentDojo's pipeline elements make it."""
        request = ChatRequest(messages, tool_specs(runtime.functions.values()), self.role)
        reply = self.model.complete(request)
        return query, runtime, env, [*messages, reply.message], extra_args or {}
