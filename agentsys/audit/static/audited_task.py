"""`Subject`: one task under audit, with its ground truth played once for all checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentdojo.functions_runtime import FunctionCall, TaskEnvironment

from agentsys.audit.static.task_player import GroundTruthFailed, Played, Stage, Task


@dataclass(frozen=True)
class Subject:
    """A task, where it begins, and how its author would do it."""

    stage: Stage
    task: Task
    start: TaskEnvironment
    """Never changed: calls are played on copies."""
    own: Played | None
    """The ground truth; None where there is none that can be played."""
    passes: bool
    """Whether the task's check accepts that."""

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The ground truth's calls."""
        return self.own.calls if self.own else ()

    def accepts(self, calls: Sequence[FunctionCall], *, strict: bool = True) -> bool | None:
        """Whether the task passes after these calls and the ground truth's answer.

        Args:
            calls: Played in order, from where the task begins.
            strict: Whether a call that ends in an error makes the question void.

        Returns:
            None if `strict` and a call ended in an error.
        """
        try:
            played = self.stage.play(self.start, calls, self.task.GROUND_TRUTH_OUTPUT, strict=strict)
        except GroundTruthFailed:
            return None
        return self.stage.passes(self.task, played)


def subject_of(stage: Stage, task: Task) -> Subject:
    """A task made ready for the checks."""
    start = stage.start(task)
    try:
        own = stage.play(start, stage.ground_truth(task, start), task.GROUND_TRUTH_OUTPUT)
    except GroundTruthFailed:
        return Subject(stage, task, start, None, False)
    return Subject(stage, task, start, own, stage.passes(task, own))
