"""`TracedRuntime` and `with_receipts`: record every tool that runs in the trace of its environment's case.

A receipt proves that a tool's own code was entered. A call without one had no effect, whoever refused it; a call with
one was made, wherever it ran. The case is found by its environment: context variables do not reach the threads of
foreign elements, which may also build their own runtime from the suite's tools.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from pydantic import BaseModel

from agentsys.base.json_values import bound_value
from agentsys.benchmarks.repeatable_tools import use_copied_state
from agentsys.contracts import Suite
from agentsys.models.trace import Tracer, get_current_tracer, use_tracer

_CASES: dict[int, tuple[object, Tracer]] = {}
"""Identity of a running case's environment, or of a part of it -> (the object, the case's trace)."""


@contextmanager
def book_runs_on(environment: TaskEnvironment, tracer: Tracer) -> Iterator[None]:
    """Record in this trace the tools that run on this environment inside the block, from any thread."""
    # Strings and numbers may be shared between environments.
    parts = [part for part in vars(environment).values() if isinstance(part, BaseModel | list | dict)]
    entries = {id(part): (part, tracer) for part in (environment, *parts)}
    _CASES.update(entries)
    try:
        yield
    finally:
        for key in entries:
            _CASES.pop(key, None)


def _find_tracer(*owned: object) -> Tracer | None:
    """Find the trace of the case that owns an environment, or a part of one."""
    return next((_CASES[id(part)][1] for part in owned if id(part) in _CASES), None)


@dataclass
class _RuntimeCall:
    """A call that our runtime is making, and records itself."""

    function: str
    ran: bool = False


class _CallInHand(threading.local):
    call: _RuntimeCall | None = None


_IN_HAND = _CallInHand()
_MARK = "writes_receipts"


def with_receipts(tools: Iterable[Function[..., Any]]) -> list[Function[..., Any]]:
    """Copy tools so that each records its runs."""
    return [tool.model_copy(update={"run": _add_receipt(tool)}) for tool in tools]


def writes_receipts(suite: Suite) -> bool:
    """True if all tools of a suite record their runs."""
    return all(hasattr(tool.run, _MARK) for tool in suite.tools)


def add_receipts(tools: Iterable[Function[..., Any]]) -> list[Function[..., Any]]:
    """Copy those tools that do not record their runs yet, so that they do."""
    return [tool if hasattr(tool.run, _MARK) else with_receipts([tool])[0] for tool in tools]


def _add_receipt(tool: Function[..., Any]) -> Callable[..., Any]:
    """Wrap a tool's function: it records in the case's trace that it ran."""
    run = tool.run

    @wraps(run)
    def run_with_receipt(*args: Any, **kwargs: Any) -> Any:
        call = _IN_HAND.call
        if call is not None and call.function == tool.name:
            call.ran = True
            return run(*args, **kwargs)
        tracer = _find_tracer(*args, *kwargs.values())
        if tracer is None:  # Not a case's environment: a ground truth, or a run on a copy.
            return run(*args, **kwargs)
        given = {name: to_json_ready(kwargs[name]) for name in kwargs if name not in tool.dependencies}
        try:
            value = run(*args, **kwargs)
        except Exception as raised:
            tracer.note_tool_call(tool.name, given, "", f"{type(raised).__name__}: {raised}", receipt=True)
            raise
        tracer.note_tool_call(tool.name, given, value, None, receipt=True)
        return value

    setattr(run_with_receipt, _MARK, True)
    return run_with_receipt


class TracedRuntime(FunctionsRuntime):  # type: ignore[misc]
    """A runtime for `run_task_with_pipeline` that records each tool call.

    Every execution of a tool - by a plain loop, a defense's inner agent, a call nested in another's arguments - goes
    through `run_function`, so it is recorded exactly once. A call of an unknown tool is no execution; a call with
    refused arguments is recorded without a receipt.
    """

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool as the base class does, then report name, arguments, value and error."""
        if function not in self.functions:
            unknown: tuple[Any, str | None] = super().run_function(env, function, kwargs, raise_on_error)
            return unknown
        tracer = _find_tracer(env) or get_current_tracer()
        # Copied before the call: a tool may change its arguments.
        args = {str(name): to_json_ready(value) for name, value in kwargs.items()}
        outer, call = _IN_HAND.call, _RuntimeCall(function)
        _IN_HAND.call = call
        try:
            value, error = super().run_function(env, function, kwargs, raise_on_error)
            value = bound_value(value)
        except Exception as raised:  # Recorded, then raised again.
            cause = f"{type(raised).__name__}: {raised}"
            tracer.note_tool_call(function, args, "", cause, receipt=call.ran)
            raise
        finally:
            _IN_HAND.call = outer
        tracer.note_tool_call(function, args, value, error, receipt=call.ran)
        return value, error

    @contextmanager
    def try_on_copy(self, env: TaskEnvironment) -> Iterator[TaskEnvironment]:
        """Yield a copy of the environment; calls on it inside the block leave no mark on the case."""
        with use_copied_state(), use_tracer(Tracer()):
            yield env.model_copy(deep=True)


def to_json_ready(value: object) -> Any:
    """Copy a tool argument as JSON-ready data; other values become their `str`."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, BaseModel):
        return to_json_ready(value.model_dump())
    if isinstance(value, Mapping):
        return {str(key): to_json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_ready(item) for item in value]
    return str(value)
