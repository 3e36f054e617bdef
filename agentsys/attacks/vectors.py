"""The injection vectors that a user task meets, by AgentDojo's own rule, and what tools return there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from threading import Lock
from typing import TypeVar

from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks.base_attacks import BaseAttack
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import ChatToolResultMessage

from agentsys.contracts import NotInjectable, Suite, UserTask

# AgentDojo keeps 128 answers for all suites and attacks together, fewer than one grid has, does not
# keep refusals, and may work out one answer in several threads. This is the function underneath.
_AGENTDOJO_RULE = BaseAttack.get_injection_candidates.__wrapped__
_Result = TypeVar("_Result")


def once_per_task(work: Callable[[Suite, UserTask], _Result]) -> Callable[[Suite, UserTask], _Result]:
    """Work something out once per user task of a suite object; safe to use from many threads.

    By identity, like AgentDojo: a task's id means another task in another version. Suite and task are kept
    beside the answer so that their identities are not given to others.
    """
    known: dict[tuple[int, int], tuple[Suite, UserTask, _Result]] = {}
    lock = Lock()

    @wraps(work)
    def found(suite: Suite, user_task: UserTask) -> _Result:
        key = id(suite), id(user_task)
        with lock:
            if key not in known:
                known[key] = suite, user_task, work(suite, user_task)
            return known[key][2]

    return found


def find_injectable_vectors(suite: Suite, user_task: UserTask) -> list[str]:
    """The vectors whose text an agent that follows the ground truth is shown.

    Raises:
        NotInjectable: If there is none.
    """
    found = _find_vectors(suite, user_task)
    if not found:
        raise NotInjectable(f"{suite.name} {user_task.ID} shows no injection vector.")
    return list(found)


@once_per_task
def _find_vectors(suite: Suite, user_task: UserTask) -> tuple[str, ...]:
    try:
        return tuple(_AGENTDOJO_RULE(BaseAttack(suite, GroundTruthPipeline(None)), user_task))
    except ValueError as error:
        if "is not injectable" in str(error):
            return ()
        raise


def run_ground_truth(
    suite: Suite, user_task: UserTask, texts: Mapping[str, str]
) -> list[ChatToolResultMessage]:
    """What tools return to one who follows a user task's ground truth.

    Args:
        suite: The suite.
        user_task: One of its user tasks.
        texts: Injection vector -> text. Other vectors keep their defaults.

    Raises:
        Exception: What the suite raises if a text breaks its environment.
    """
    environment = user_task.init_environment(suite.load_and_inject_default_environment(dict(texts)))
    truth = GroundTruthPipeline(user_task)
    messages = truth.query(user_task.PROMPT, FunctionsRuntime(suite.tools), environment)[3]
    return [message for message in messages if message["role"] == "tool"]


def make_canary(vector: str) -> str:
    """One word, so that no formatter breaks it over two lines; ends so that `x_1` is not met in `x_10`."""
    return f"<CANARY---{vector}--->"
