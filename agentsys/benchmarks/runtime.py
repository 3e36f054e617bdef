"""`WatchedRuntime`: AgentDojo's tool runtime, which books every tool call it executes in the case's trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from pydantic import BaseModel

from agentsys.models.trace import current_tracer


class TracedRuntime(FunctionsRuntime):  # type: ignore[misc]
    """Pass it to `run_task_with_pipeline` as `runtime_class`.

    Whoever executes a tool - a plain loop, a defense's inner agent, a call nested in another's
    arguments - goes through `run_function`, so each execution is booked exactly once. A tool the
    runtime does not have is not an execution.
    """

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool as the base class does, then report name, arguments, value and error.

        Raises:
            Exception: What the base class raises, unchanged.
        """
        if function not in self.functions:
            unknown: tuple[Any, str | None] = super().run_function(env, function, kwargs, raise_on_error)
            return unknown
        # Before the call: a tool may change the lists it is given.
        args = {str(name): to_json_ready(value) for name, value in kwargs.items()}
        try:
            value, error = super().run_function(env, function, kwargs, raise_on_error)
        except Exception as raised:  # whatever it was: booked, then raised again
            current_tracer().tool_ran(function, args, "", f"{type(raised).__name__}: {raised}")
            raise
        current_tracer().tool_ran(function, args, value, error)
        return value, error


def to_json_ready(value: object) -> Any:
    """A copy of a tool argument as JSON-ready data; what JSON has no form for becomes its `str`."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, BaseModel):
        return to_json_ready(value.model_dump())
    if isinstance(value, Mapping):
        return {str(key): to_json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_ready(item) for item in value]
    return str(value)
