"""`FilteredRuntime`: filters around the tools of any agent, whatever runs them and however often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment

from agentsys.models.chat import tool_message
from agentsys.models.pipeline_elements import LoopState, LoopStep
from agentsys.models.providers.wire_parts import visible_text
from baselines.border.filter import BoundaryFilter, FilterTurn, apply_to_results, tool_accepts, apply_to_calls


class CallRefused(Exception):
    """A refused call, where the caller wants errors raised."""


class FilteredRuntime(FunctionsRuntime):  # type: ignore[misc]
    """A runtime whose calls and results pass filters, one call at a time.

    A result that no filter changed is handed on as the value it was; a changed one as its text.
    """

    def __init__(self, inner: FunctionsRuntime, filters: Sequence[BoundaryFilter], query: str) -> None:
        super().__init__(list(inner.functions.values()))
        self.inner = inner
        self.filters = tuple(filters)
        self.turn = FilterTurn(query, inner)

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool between the filters.

        Raises:
            CallRefused: If the call is refused and errors are to be raised.
            EndCase: If a filter ends the case.
            Exception: What the inner runtime raises, unchanged.
        """
        try:
            resolved = self._execute_nested_calls(env, kwargs)
        except CallRefused as refused:
            if raise_on_error:
                raise
            return "", str(refused)
        call = FunctionCall(function=function, args=resolved)
        if not tool_accepts(self.inner, call):
            own: tuple[Any, str | None] = self.inner.run_function(env, function, resolved, raise_on_error)
            return own
        (ruling,) = apply_to_calls(self.filters, self.turn, [call])
        if ruling.refusal is not None:
            if raise_on_error:
                raise CallRefused(ruling.refusal)
            return "", ruling.refusal
        value, error = self.inner.run_function(env, function, dict(ruling.call.args), raise_on_error)
        if not tool_accepts(self.inner, ruling.call):
            return value, error
        returned = tool_message(ruling.call, tool_result_to_str(value), error)
        (read,) = apply_to_results(self.filters, self.turn, [returned])
        return (value, error) if read is returned else (visible_text(read), read["error"])


class FilteredAgent(LoopStep):
    """Runs an agent with filtered tools."""

    def __init__(self, agent: BasePipelineElement, filters: Sequence[BoundaryFilter]) -> None:
        self.agent = agent
        self.filters = tuple(filters)

    def step(self, at: LoopState) -> LoopState:
        """One run of the agent."""
        guarded = FilteredRuntime(at.runtime, self.filters, at.query)
        after = replace(at, runtime=guarded).run_element(self.agent)
        return replace(after, query=at.query, runtime=at.runtime)
