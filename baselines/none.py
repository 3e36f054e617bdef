"""`NoDefense`: the plain agent that every other defense is compared with."""

from __future__ import annotations

from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, tool_loop


class NoDefense:
    """System message, user query, then model and tools in turn: AgentDojo's agent, unprotected."""

    name = "none"

    def description(self) -> str:
        """Say that there is nothing between tools and model."""
        return (
            "There is no defense. One agent reads the user's request and every tool result in the same"
            " conversation. Results are shown to it as the tools return them, unmarked and unread by anyone"
            " else. No call is checked before it runs. What a result says stands beside the request, and the"
            " model alone decides whom it listens to."
        )

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the plain agent. Its name is the model's, as in AgentDojo."""
        return tool_loop(model, default_system_message(suite), name=model.name)
