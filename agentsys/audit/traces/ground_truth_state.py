"""State-equal failures: user tasks scored false although the environment is exactly the ground truth's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment

from agentsys.benchmarks.shared_copies import deep_copy
from agentsys.rescoring.tasks import benchmark

_CLOCK_YEAR = 2025
"""Dates of this year on are stamps of the clock: the benchmark's own data ends before."""


class GroundTruthState(NamedTuple):
    """The state that a user task's ground truth leads to."""

    after: Any
    """The comparable dump of its environment."""
    changes: bool
    """Whether that differs from the environment it began with."""


def comparable(environment: TaskEnvironment) -> Any:
    """An environment's dump, with all stamps of the clock equal."""
    return _unstamped(environment.model_dump())


def _unstamped(value: Any) -> Any:
    if isinstance(value, datetime):
        return "now" if value.year >= _CLOCK_YEAR else value
    if isinstance(value, Mapping):
        return {key: _unstamped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unstamped(item) for item in value]
    return value


@lru_cache(maxsize=512)
def ground_truth_state(version: str, suite_name: str, user_task_id: str) -> GroundTruthState | None:
    """Play the ground truth of a user task, without injections; None where it cannot be worked out.

    Raises:
        ConfigError: If there is no such version or suite.
    """
    suite = benchmark(version).suite(suite_name)
    task = suite.user_tasks.get(user_task_id)
    if not isinstance(task, BaseUserTask):
        return None
    before = task.init_environment(suite.load_and_inject_default_environment({}))
    after, runtime = deep_copy(before), FunctionsRuntime(suite.tools)
    try:
        for call in task.ground_truth(deep_copy(before)):
            runtime.run_function(after, call.function, call.args)
    except Exception:  # noqa: BLE001 - a suite from outside may raise anything: it has no ground truth then
        return None
    dump = comparable(after)
    return GroundTruthState(dump, dump != comparable(before))
