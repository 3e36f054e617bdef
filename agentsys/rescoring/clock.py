"""`restamped`: an environment as it would be had the record's clock been running.

Tools stamp what they write (a sent mail, a new file) with the current time. To see whether a check
depends on it, the stamps of today are replaced by the one the record shows.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from agentdojo.functions_runtime import TaskEnvironment
from pydantic import BaseModel

from agentsys.benchmarks.twins import deep_copy
from agentsys.rescoring.same_text import stamps
from agentsys.rescoring.trajectory import Trajectory


def recorded_now(trajectory: Trajectory) -> datetime.datetime | None:
    """The first stamp of the clock in what a record's tools returned; None where there is none."""
    for text in trajectory.tool_texts:
        for found in stamps(text):
            try:
                return datetime.datetime.fromisoformat(found)
            except ValueError:  # digits that are no date
                continue
    return None


def restamped(
    environment: TaskEnvironment, since: datetime.datetime, now: datetime.datetime
) -> TaskEnvironment:
    """A copy in which every date between `since` and this moment, without a time zone, is `now`."""
    until = datetime.datetime.now()

    def moved(value: Any) -> Any:
        recent = isinstance(value, datetime.datetime) and value.tzinfo is None and since <= value <= until
        return now if recent else value

    copied = deep_copy(environment)
    _replace(copied, moved)
    return copied


def _replace(node: Any, moved: Callable[[Any], Any]) -> Any:
    """`node` with every leaf moved; containers are changed in place."""
    if isinstance(node, BaseModel):
        fields = vars(node)
        for name, value in fields.items():
            fields[name] = _replace(value, moved)
    elif isinstance(node, dict):
        for name, value in node.items():
            node[name] = _replace(value, moved)
    elif isinstance(node, list):
        node[:] = [_replace(value, moved) for value in node]
    else:
        return moved(node)
    return node
