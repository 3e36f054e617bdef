"""The injection vectors that a user task meets, by AgentDojo's own rule, asked once per user task."""

from __future__ import annotations

from threading import Lock

from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks.base_attacks import BaseAttack

from agentsys.contracts import NotInjectable, Suite, UserTask

# AgentDojo keeps 128 answers for all suites and attacks together, fewer than one grid has, does not
# keep refusals, and may work out one answer in several threads. This is the function underneath.
_PACKAGES_RULE = BaseAttack.get_injection_candidates.__wrapped__


class VectorFinder:
    """Finds the vectors of one suite's user tasks. Safe to use from many threads.

    Args:
        suite: The suite; its user tasks' ground truths are executed once each, in an environment
            whose vectors hold canaries.
    """

    def __init__(self, suite: Suite) -> None:
        self._probe = BaseAttack(suite, GroundTruthPipeline(None))
        self._found: dict[int, tuple[UserTask, tuple[str, ...]]] = {}
        self._lock = Lock()

    def vectors(self, user_task: UserTask) -> list[str]:
        """The vectors whose text an agent following the ground truth is shown.

        Raises:
            NotInjectable: If there is none.
        """
        with self._lock:
            # By identity, like AgentDojo: a task's id means another task in another version. The
            # task is kept beside its answer so that its identity is not given to another one.
            if id(user_task) not in self._found:
                self._found[id(user_task)] = (user_task, self._find(user_task))
            found = self._found[id(user_task)][1]
        if not found:
            raise NotInjectable(f"{self._probe.task_suite.name} {user_task.ID} shows no injection vector.")
        return list(found)

    def _find(self, user_task: UserTask) -> tuple[str, ...]:
        try:
            return tuple(_PACKAGES_RULE(self._probe, user_task))
        except ValueError as error:
            if "is not injectable" in str(error):
                return ()
            raise


_FINDERS: dict[int, tuple[Suite, VectorFinder]] = {}
_FINDERS_LOCK = Lock()


def injectable_vectors(suite: Suite, user_task: UserTask) -> list[str]:
    """The vectors of a user task that can carry an injection; worked out once per suite object and task.

    Raises:
        NotInjectable: If there is none.
    """
    with _FINDERS_LOCK:
        if id(suite) not in _FINDERS:
            _FINDERS[id(suite)] = (suite, VectorFinder(suite))
        finder = _FINDERS[id(suite)][1]
    return finder.vectors(user_task)
