"""`ToolPin`: the tools as the suite's authors describe them, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.functions_runtime import Function
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.models.chat import ChatModel
from baselines.none import NoDefense


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
        """Give the suite's tools, under the suite's descriptions."""
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
