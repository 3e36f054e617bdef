"""`TracedRuntime` and `with_receipts`: every tool that runs is booked in the case whose environment it ran on.

A receipt says that a tool's own code was entered. A call without one did nothing, whoever refused it, and a call
with one was made, wherever it ran. A case is found by its environment: context variables do not reach a foreign
element's thread, and a runtime that it makes of the suite's tools is not ours.
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
from agentsys.contracts import Suite
from agentsys.models.trace import Tracer, get_current_tracer

_CASES: dict[int, tuple[object, Tracer]] = {}
"""Identity of the environment of a case under way, or of a part of it -> itself, and the case's trace."""


@contextmanager
def book_runs_on(environment: TaskEnvironment, tracer: Tracer) -> Iterator[None]:
    """Book in this trace what tools do to this environment inside the block, from whichever thread."""
    # Texts and numbers are no part of one environment alone.
    parts = [part for part in vars(environment).values() if isinstance(part, BaseModel | list | dict)]
    found = {id(part): (part, tracer) for part in (environment, *parts)}
    _CASES.update(found)
    try:
        yield
    finally:
        for key in found:
            _CASES.pop(key, None)


def _find_tracer(*owned: object) -> Tracer | None:
    """The trace of the case that an environment, or a part of one, belongs to."""
    return next((_CASES[id(one)][1] for one in owned if id(one) in _CASES), None)


@dataclass
class _RuntimeCall:
    """A call that our runtime has in hand, and books itself."""

    function: str
    ran: bool = False


class _CallInHand(threading.local):
    call: _RuntimeCall | None = None


_IN_HAND = _CallInHand()
_MARK = "writes_receipts"


def with_receipts(tools: Iterable[Function[..., Any]]) -> list[Function[..., Any]]:
    """The same tools; each says when it runs. The given ones stay as they are."""
    return [tool.model_copy(update={"run": _write_receipt(tool)}) for tool in tools]


def writes_receipts(suite: Suite) -> bool:
    """Whether all tools of a suite say when they run."""
    return all(hasattr(tool.run, _MARK) for tool in suite.tools)


def add_receipts(tools: Iterable[Function[..., Any]]) -> list[Function[..., Any]]:
    """The same tools, those made to say when they run that do not yet."""
    return [tool if hasattr(tool.run, _MARK) else with_receipts([tool])[0] for tool in tools]


def _write_receipt(tool: Function[..., Any]) -> Callable[..., Any]:
    run = tool.run

    @wraps(run)
    def run_with_receipt(*args: Any, **kwargs: Any) -> Any:
        call = _IN_HAND.call
        if call is not None and call.function == tool.name:
            call.ran = True
            return run(*args, **kwargs)
        tracer = _find_tracer(*args, *kwargs.values())
        if tracer is None:  # no case's environment: a ground truth, a rehearsal on a copy
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
    """Pass it to `run_task_with_pipeline` as `runtime_class`.

    Whoever executes a tool - a plain loop, a defense's inner agent, a call nested in another's
    arguments - goes through `run_function`, so each execution is booked exactly once. A tool the
    runtime does not have is not an execution; arguments that it refuses are one without a receipt.
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
        # Before the call: a tool may change the lists it is given.
        args = {str(name): to_json_ready(value) for name, value in kwargs.items()}
        outer, call = _IN_HAND.call, _RuntimeCall(function)
        _IN_HAND.call = call
        try:
            value, error = super().run_function(env, function, kwargs, raise_on_error)
            value = bound_value(value)
        except Exception as raised:  # whatever it was: booked, then raised again
            cause = f"{type(raised).__name__}: {raised}"
            tracer.note_tool_call(function, args, "", cause, receipt=call.ran)
            raise
        finally:
            _IN_HAND.call = outer
        tracer.note_tool_call(function, args, value, error, receipt=call.ran)
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
