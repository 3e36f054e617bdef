"""Facts that published files leave out: ground-truth lengths, and what is known of some defenses."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

FALLBACK_VERSION = "v1"
"""Taken where a file names no version or one that is not listed: the files that name none are of v1."""


def find_ground_truth_length(version: str, suite: str, user_task_id: str) -> int | None:
    """Calls in the ground truth of one of AgentDojo's user tasks; of an unknown version `FALLBACK_VERSION`'s.

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


def list_known_versions() -> list[str]:
    """AgentDojo's versions, oldest first."""
    return list(_load_lengths())


_INJECTION_TASKS = {"banking": range(9), "slack": range(1, 6), "travel": range(7), "workspace": range(6)}
_ADDED_IN_V1_2 = {"workspace": 8}
"""Suite -> numbers of its injection tasks in AgentDojo's versions before v1.2, and those that v1.2 added; all versions have the
same user tasks."""


class SuiteSize(NamedTuple):
    """How much there is in a suite of AgentDojo's."""

    user_tasks: Collection[str]
    injection_tasks: Collection[str]


def list_suite_sizes(version: str) -> dict[str, SuiteSize]:
    """Suite of AgentDojo's -> what one of its versions has; of an unknown version `FALLBACK_VERSION`'s."""
    plain = version.partition(" ")[0]
    lengths = _load_lengths()
    is_late = plain in lengths and [*lengths].index(plain) >= [*lengths].index("v1.2")
    return {
        suite: SuiteSize(
            lengths.get(plain, lengths[FALLBACK_VERSION])[suite],
            [
                f"injection_task_{at}"
                for at in range(numbers.start, numbers.stop + is_late * _ADDED_IN_V1_2.get(suite, 0))
            ],
        )
        for suite, numbers in _INJECTION_TASKS.items()
    }


RESULT_REPLACING_DEFENSES = frozenset({"protectai", "piguard", "prompt_guard_2", "melon", "drift", "camel"})
"""Defenses that put their own text in a tool result's place before it is stored (or keep results out of the
messages): what the tool returned is then known only where the payload got through."""

NAMELESS_MODELS = frozenset({"local", "vllm_parsed"})
"""What AgentDojo calls a model of one's own server, whichever it is."""

REWORDED_DEFENSES = frozenset({"tool_filter", "melon", "drift", "progent", "camel"})
"""Defenses that ask models, whose published runs were made with other prompts than ours of that name."""
