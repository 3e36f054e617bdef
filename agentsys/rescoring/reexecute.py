"""`reexecute`: a record's tool calls, in order, on a fresh environment with the record's own injections."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentdojo.agent_pipeline.tool_execution import is_string_list
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.benchmarks.clock import DEFAULT, parsed_clock, reading
from agentsys.models.tool_text import tool_text
from agentsys.payload_lines import squeeze
from agentsys.rescoring.tasks import Tasks
from agentsys.rescoring.trajectories.trajectory import RecordedCall, Trajectory


@dataclass(frozen=True)
class Reexecution:
    """The environment before a record's calls and after them. Checks must be given copies."""

    before: TaskEnvironment
    after: TaskEnvironment
    failed: tuple[bool, ...] = ()
    """Of each call that was executed, whether its tool returned an error."""


def reexecute(
    trajectory: Trajectory, tasks: Tasks, suite: TaskSuite[Any], clock: datetime | None = None
) -> Reexecution:
    """Do again what was done.

    Args:
        trajectory: A record from `read_trajectory`. Where it does not know what was injected, the vectors
            keep their defaults: then tools return other texts, and the checks judge the same calls.
        tasks: The record's tasks in the suite's version.
        suite: A suite of `agentsys.benchmarks.agentdojo.AgentDojo`.
        clock: Time at which the clock that tools read begins; None: where the record's began, or, if it does
            not say, where any case's begins.

    Raises:
        ValueError: If an injection vector is not one of the suite's.
        InjectionBreaksEnvironment: If the environment cannot be loaded with a text.
    """
    before, after = (_fresh(trajectory, tasks, suite) for _ in range(2))
    with reading(clock or _clock(trajectory)):
        failed = tuple(error is not None for _, error in _results(trajectory.executed, suite, after))
    return Reexecution(before, after, failed)


def retold(trajectory: Trajectory, tasks: Tasks, suite: TaskSuite[Any]) -> list[str]:
    """Collect what tools return to a record's calls today: errors in place of contents, as models see them.

    Args:
        trajectory: A record from `read_trajectory`.
        tasks: The record's tasks in the suite's version.
        suite: The suite, as `reexecute` takes it, which raises the same.
    """
    environment = _fresh(trajectory, tasks, suite)
    with reading(_clock(trajectory)):
        results = _results(trajectory.executed, suite, environment)
        return [error or tool_text(value) for value, error in results]


def _clock(trajectory: Trajectory) -> datetime | None:
    return trajectory.clock or parsed_clock(DEFAULT)


def _fresh(trajectory: Trajectory, tasks: Tasks, suite: TaskSuite[Any]) -> TaskEnvironment:
    loaded = suite.load_and_inject_default_environment(dict(trajectory.injections or {}))
    user_task: BaseUserTask[Any] | BaseInjectionTask[Any] = tasks.user
    # An injection task run alone is no user task, and AgentDojo then leaves the environment as it is.
    return user_task.init_environment(loaded) if isinstance(user_task, BaseUserTask) else loaded


def _results(
    calls: Sequence[RecordedCall], suite: TaskSuite[Any], environment: TaskEnvironment
) -> Iterator[tuple[Any, str | None]]:
    """Value and error of each call; the environment changes as they are taken."""
    runtime = FunctionsRuntime(suite.tools)
    for call in calls:
        if call.function in runtime.functions:
            yield runtime.run_function(environment, call.function, as_executed(call.args))
        else:  # in the executor's words: such a call never reaches the runtime
            yield "", f"Invalid tool {call.function} provided."


def as_executed(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as AgentDojo's executor hands them on: a text that reads as a list becomes the list."""
    return {name: _unpacked(value) for name, value in args.items()}


def _unpacked(value: Any) -> Any:
    try:
        return literal_eval(value) if isinstance(value, str) and is_string_list(value) else value
    except (RecursionError, MemoryError):  # a text of brackets; AgentDojo would have stopped the run
        return value


def as_calls(calls: Sequence[RecordedCall]) -> list[FunctionCall]:
    """Calls in AgentDojo's type, as its executor left them in the messages."""
    return [FunctionCall(function=call.function, args=as_executed(call.args)) for call in calls]


_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+")
"""A date with fractions of a second: taken from a clock, as no date in the benchmark's data has them."""
_LIBRARY = re.compile(r"errors\.pydantic\.dev/[\d.]+/")
"""Errors of wrong arguments name pydantic's version."""


def same_text(recorded: str, today: str) -> bool:
    """Whether a recorded text is what the tool returns today.

    Stamps of the clock, the library's version in an error, line breaks and quoting are passed over. So is
    the order of lines: an event's participants are a set. A recorded text with today's inside it counts as
    the same, since some defenses put marks around what a tool returns.
    """
    first, second = (_LIBRARY.sub("", _STAMP.sub("", text)) for text in (recorded, today))
    if first == second or squeeze(second) in squeeze(first):
        return True
    return sorted(first.splitlines()) == sorted(second.splitlines())


def stamps(text: str) -> list[str]:
    """The clock's stamps in a text, in order."""
    return _STAMP.findall(text)
