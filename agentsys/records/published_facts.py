"""Facts that published files leave out: ground-truth lengths, and what is known of some defenses."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

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


RESULT_REPLACING_DEFENSES = frozenset({"protectai", "piguard", "prompt_guard_2", "melon", "drift", "camel"})
"""Defenses that put their own text in a tool result's place before it is stored (or keep results out of the
messages): what the tool returned is then known only where the payload got through."""

NAMELESS_MODELS = frozenset({"local", "vllm_parsed"})
"""What AgentDojo calls a model of one's own server, whichever it is."""

REWORDED_DEFENSES = frozenset({"tool_filter", "melon", "drift", "progent", "camel"})
"""Defenses that ask models, whose published runs were made with other prompts than ours of that name."""
