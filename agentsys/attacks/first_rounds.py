"""The tool result of a user task's ground truth in which each injection vector is first seen."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import get_text_content_as_str

from agentsys.contracts import Suite, UserTask

_Known = dict[tuple[int, int], tuple[Suite, UserTask, dict[str, int]]]

_KNOWN: _Known = {}
"""By identity, as in `agentsys.attacks.vectors`: a task's id means another task in another version.
Suite and task are kept beside the answer so that their identities are not given away."""
_LOCK = Lock()


def first_rounds(suite: Suite, user_task: UserTask) -> Mapping[str, int]:
    """Injection vector -> number of the first tool result that shows it; worked out once per task.

    The ground truth is executed once, in an environment whose vectors hold canaries and nothing else.

    Args:
        suite: The suite.
        user_task: One of its user tasks.

    Returns:
        Numbers from 1. Vectors that no result shows are absent.
    """
    key = id(suite), id(user_task)
    with _LOCK:
        if key not in _KNOWN:
            texts = dict.fromkeys(suite.get_injection_vector_defaults(), "")
            _KNOWN[key] = suite, user_task, rounds_of(suite, user_task, texts)
        return dict(_KNOWN[key][2])


def rounds_of(suite: Suite, user_task: UserTask, texts: Mapping[str, str]) -> dict[str, int]:
    """The same with texts in some vectors: what a tool returns may depend on what it looks through.

    Args:
        suite: The suite.
        user_task: One of its user tasks.
        texts: Injection vector -> text; a canary is appended. Other vectors keep their defaults.

    Raises:
        Exception: What the suite raises if a text breaks its environment.
    """
    marked = {vector: f"{text}{canary(vector)}" for vector, text in texts.items()}
    environment = user_task.init_environment(suite.load_and_inject_default_environment(marked))
    truth = GroundTruthPipeline(user_task)
    messages = truth.query(user_task.PROMPT, FunctionsRuntime(suite.tools), environment)[3]
    results = [get_text_content_as_str(m["content"] or []) for m in messages if m["role"] == "tool"]
    found: dict[str, int] = {}
    for number, result in enumerate(results, start=1):
        for vector in texts:
            if canary(vector) in result:
                found.setdefault(vector, number)
    return found


def canary(vector: str) -> str:
    """One word, so that no formatter breaks it over two lines; ends so that `x_1` is not met in `x_10`."""
    return f"<CANARY---{vector}--->"
