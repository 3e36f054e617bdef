"""`ToolsElement`: AgentDojo's executor, safe to run on many threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor, tool_result_to_str

from agentsys.models.element import LoopState, LoopStep
from agentsys.python_parser import release_parser_lock, parser_lock


class ToolsElement(LoopStep):
    """Runs the calls of the last message with AgentDojo's executor and appends their results.

    Args:
        formatter: Turns a tool's value into the text of the tool message.
    """

    runs_tools = True

    def __init__(self, formatter: Callable[[Any], str] = tool_result_to_str) -> None:
        self.formatter = formatter

    def step(self, at: LoopState) -> LoopState:
        """Run the calls.

        Raises:
            Exception: What a tool or the formatter raises.
        """
        executor = ToolsExecutor(release_parser_lock(self.formatter))
        runtime = SimpleNamespace(
            functions=at.runtime.functions, run_function=release_parser_lock(at.runtime.run_function)
        )
        # AgentDojo parses each argument that is a text. What tools and formatters do may take long.
        with parser_lock:
            messages = executor.query(at.query, runtime, at.env, at.messages, at.extra)[3]
        return replace(at, messages=messages)


def is_plain_executor(element: BasePipelineElement) -> bool:
    """Whether an element is AgentDojo's executor and nothing more, which asks nobody before a call."""
    return type(element) in (ToolsElement, ToolsExecutor)
