"""`FilterResults`: what filters make of results that are handed to them, whoever ran the tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentdojo.agent_pipeline.errors import AbortAgentError

from agentsys.models.pipeline_elements import LoopState, LoopStep
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
