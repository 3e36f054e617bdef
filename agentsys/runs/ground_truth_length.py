"""`ground_truth_length`: how many calls a user task takes when it is done as its author meant."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite


@lru_cache(maxsize=4096)
def ground_truth_length(suite: TaskSuite[Any], user_task_id: str) -> int | None:
    """Calls in a user task's ground truth on a clean environment; worked out once per process.

    Args:
        suite: The suite the task belongs to.
        user_task_id: Its id there.

    Returns:
        None where the task has no ground truth that can be computed: a label on a record, it must not
        cost the case.
    """
    task = suite.user_tasks[user_task_id]
    try:
        environment = task.init_environment(suite.load_and_inject_default_environment({}))
        return len(task.ground_truth(environment))
    except Exception:  # noqa: BLE001 - a suite from outside may raise anything here
        return None
