"""`BorderDefense`: the plain agent with one filter at the border to its tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, tool_loop
from baselines.border.elements import FilteredTools, CallHistory
from baselines.border.filter import BoundaryFilter


class BoundaryDefense(ABC):
    """A defense that acts at the border alone, so that it can be put in front of other agents too.

    A subclass gives the filter; its YAML makes it a config.
    """

    name: str
    history: CallHistory = "proposed"
    """See `FilteredTools`."""

    @property
    def needs_conversation(self) -> bool:
        """Whether the filter reads the agent's conversation, or ends it: then it fits plain loops only."""
        return False

    @abstractmethod
    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> Sequence[BoundaryFilter]:
        """The filters of one case, made afresh."""

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The plain agent with the filters between it and its tools."""
        return tool_loop(
            model,
            default_system_message(suite),
            name=f"{model.name}-{self.name}",
            tools=FilteredTools(self.boundary_filters(model, suite), self.history),
        )
