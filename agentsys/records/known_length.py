"""`known_length`: ground-truth lengths of AgentDojo's user tasks, for files that do not record them."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import orjson

FALLBACK_VERSION = "v1"
"""Taken where a file names no version or one that is not listed: the files that name none are of v1."""


def find_ground_truth_length(version: str, suite: str, user_task_id: str) -> int | None:
    """Calls in the ground truth of one of AgentDojo's user tasks.

    Args:
        version: The benchmark's version as recorded (`v1.2 or later` is taken for v1.2), or anything else for
            `FALLBACK_VERSION`.
        suite: The suite's name.
        user_task_id: The user task's id.

    Returns:
        None for tasks that AgentDojo does not have (those of forks, injection tasks run alone).
    """
    lengths = _load_lengths()
    in_suite = lengths.get(version.partition(" ")[0], lengths[FALLBACK_VERSION]).get(suite, {})
    found: int | None = in_suite.get(user_task_id)
    return found


@lru_cache(maxsize=1)
def _load_lengths() -> dict[str, Any]:
    """Version -> suite -> user task -> calls. Made by scripts/make_ground_truth_lengths.py."""
    listed: dict[str, Any] = orjson.loads(
        files("agentsys.records").joinpath("data", "ground_truth_lengths.json").read_bytes()
    )
    return listed
