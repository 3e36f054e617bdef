"""`FilterResults`: what filters make of results that are handed to them, whoever ran the tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentdojo.agent_pipeline.errors import AbortAgentError

from agentsys.models.pipeline_elements import LoopState, LoopStep
from baselines.tool_boundary.boundary_filter import (
    BoundaryFilter,
    EndCase,
    FilterTurn,
    _replace_at,
    apply_to_results,
)
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
        places, seen = find_new_results(at.messages), list(at.messages)
        start = places[0] if places else len(seen)
        results = [message for message in (seen[place] for place in places) if message["role"] == "tool"]
        try:
            read = (
                apply_to_results(self.filters, FilterTurn(at.query, at.runtime, seen[:start]), results)
                if results
                else []
            )
        except EndCase as end:
            raise AbortAgentError(str(end), _replace_at(seen, places, end.results), at.env) from None
        return replace(at, messages=_replace_at(seen, places, read))
