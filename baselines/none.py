"""The plain agent: `NoDefense`, which every defense is compared with, and `ToolPin`, over pinned descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import Function
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.contracts import Defense
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, tool_loop


class NoDefense(Defense):
    """System message, user query, then model and tools in turn: AgentDojo's agent, unprotected."""

    name = "none"

    def description(self) -> str:
        """Describe that nothing is between tools and model."""
        return (
            "There is no defense. One agent reads the user's request and every tool result in the same"
            " conversation. Results are shown to it as the tools return them, unmarked and unread by anyone"
            " else. No call is checked before it runs. What a result says stands beside the request, and the"
            " model alone decides whom it listens to."
        )

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the plain agent. Its name is the model's, as in AgentDojo."""
        return tool_loop(model, default_system_message(suite), name=model.name)


class ToolPin(NoDefense):
    """The plain agent, over descriptions that were looked through once and are kept.

    What a tool is called and says of itself is the suite's own; tools that the suite does not have are not
    offered. Parameters, results and errors are as the tool has them.
    """

    name = "tool_pin"
    reads_tools = True

    def read_tools(
        self, tools: Sequence[Function], suite: TaskSuite[Any], model: ChatModel
    ) -> list[Function]:
        """Return the suite's tools under the suite's descriptions."""
        own = {tool.name: tool.description for tool in suite.tools}
        pinned = [tool for tool in tools if tool.name in own]
        return [tool.model_copy(update={"description": own[tool.name]}) for tool in pinned]

    def description(self) -> str:
        """Say what is pinned, and what is not."""
        return (
            "One agent reads the user's request and every tool result in the same conversation. The tools that"
            " it is offered are those that the operator knows, each under the description that the operator has"
            " kept of it. A tool that was added since is not offered. A description that was changed is not"
            " shown. Parameters are offered as the tool has them now. Results and errors reach the agent as"
            " they are. No call is checked before it runs."
        )
