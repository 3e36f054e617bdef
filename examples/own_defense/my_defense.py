"""A complete defense outside the package: cuts tagged passages out of everything a tool returns.

An example of the shape, not a defense to rely on: it stops one published attack, which announces
itself with a tag, and an attacker who reads this file leaves the tag out.
"""

from __future__ import annotations

from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.plugins import ChatModel, default_system_message, tool_loop


class MyDefense:
    """The plain agent, with `<TAG>...</TAG>` cut out of tool results.

    Args:
        tag: The name between the angle brackets.
    """

    name = "my_defense"

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case. `model` is any chat model, `suite` any suite of any benchmark."""

        def formatter(value: Any) -> str:
            return without_tagged(tool_result_to_str(value), self.tag)

        return tool_loop(
            model, default_system_message(suite), name=f"{model.name}-{self.name}", formatter=formatter
        )


def without_tagged(text: str, tag: str) -> str:
    """The text without tagged passages; one that is never closed goes to the end of the text."""
    head, *passages = text.split(f"<{tag}>")
    return head + "".join(passage.partition(f"</{tag}>")[2] for passage in passages)
