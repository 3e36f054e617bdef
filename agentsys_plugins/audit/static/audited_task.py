"""`CallPlayer` plays calls on a suite and asks the benchmark's own checks; `AuditedTask` is one task under audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import text_content_block_from_string

from agentsys.benchmarks.scoring import SuiteTask, are_equal, copy_deeply
from agentsys.contracts import Suite


@dataclass(frozen=True)
class PlayedCalls:
    """Some calls, played in order on a fresh environment."""

    before: TaskEnvironment
    after: TaskEnvironment
    calls: tuple[FunctionCall, ...]
    answer: str
    """What the agent says last."""


class GroundTruthFailed(Exception):
    """A ground truth that cannot be worked out, or one of whose calls ends in an error."""


class CallPlayer:
    """Plays calls on one suite's environments. Keeps nothing that a later call could change."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self._runtime = FunctionsRuntime(suite.tools)

    def start_environment(
        self, task: SuiteTask, injections: Mapping[str, str] | None = None
    ) -> TaskEnvironment:
        """The environment in which a task begins; the caller's own.

        Raises:
            ValueError: If an injection is for a vector that the suite does not have.
        """
        environment = self.suite.load_and_inject_default_environment(dict(injections or {}))
        if isinstance(task, BaseUserTask):
            prepared: TaskEnvironment = task.init_environment(environment)
            return prepared
        return environment

    def find_ground_truth(self, task: SuiteTask, start: TaskEnvironment) -> tuple[FunctionCall, ...]:
        """The calls that solve a task, worked out on a copy of `start`.

        Raises:
            GroundTruthFailed: If the task cannot give them.
        """
        try:
            return tuple(task.ground_truth(copy_deeply(start)))
        except Exception as error:  # whatever a suite from outside raises
            raise GroundTruthFailed(f"{type(error).__name__}: {error}") from error

    def play(
        self, start: TaskEnvironment, calls: Sequence[FunctionCall], answer: str, *, strict: bool = True
    ) -> PlayedCalls:
        """Play calls on a copy of `start`.

        Args:
            start: The environment to begin in; it stays as it is.
            calls: Calls to play, in order.
            answer: The agent's last words.
            strict: Whether a call that ends in an error ends the play; an agent would go on.

        Raises:
            GroundTruthFailed: If `strict` and a call ends in an error.
        """
        after = copy_deeply(start)
        for call in calls:
            _, error = self._runtime.run_function(after, call.function, call.args)
            if error and strict:
                raise GroundTruthFailed(f"{call.function}: {error}")
        return PlayedCalls(start, after, tuple(calls), answer)

    def is_passed(self, task: SuiteTask, played: PlayedCalls) -> bool:
        """The benchmark's verdict: utility of a user task, success of an injection task.

        A check that raises gives no verdict, so it has not passed.
        """
        answer = [text_content_block_from_string(played.answer)]
        try:
            return bool(
                self.suite._check_task_result(task, answer, played.before, played.after, played.calls)
            )
        except Exception:  # noqa: BLE001 - checks are written for sane environments; whatever they raise
            return False

    def find_writing_calls(self, start: TaskEnvironment, calls: Sequence[FunctionCall]) -> tuple[int, ...]:
        """Places of the calls that change the environment, when all are played on a copy of `start`."""
        environment, found = copy_deeply(start), []
        before = copy_deeply(environment)
        for place, call in enumerate(calls):
            self._runtime.run_function(environment, call.function, call.args)
            if not are_equal(before, environment):
                found.append(place)
                before = copy_deeply(environment)
        return tuple(found)


@dataclass(frozen=True)
class AuditedTask:
    """A task, where it begins, and how its author would do it."""

    stage: CallPlayer
    task: SuiteTask
    start: TaskEnvironment
    """Never changed: calls are played on copies."""
    ground_truth: PlayedCalls | None
    """The ground truth; None where there is none that can be played."""
    passes: bool
    """Whether the task's check accepts that."""

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The ground truth's calls."""
        return self.ground_truth.calls if self.ground_truth else ()

    def accepts(self, calls: Sequence[FunctionCall], *, strict: bool = True) -> bool | None:
        """True if the task passes after these calls and the ground truth's answer.

        Returns:
            None if `strict` and a call ended in an error, which makes the question void.
        """
        try:
            played = self.stage.play(self.start, calls, self.task.GROUND_TRUTH_OUTPUT, strict=strict)
        except GroundTruthFailed:
            return None
        return self.stage.is_passed(self.task, played)


def prepare_task(stage: CallPlayer, task: SuiteTask) -> AuditedTask:
    """A task made ready for the checks."""
    start = stage.start_environment(task)
    try:
        own = stage.play(start, stage.find_ground_truth(task, start), task.GROUND_TRUTH_OUTPUT)
    except GroundTruthFailed:
        return AuditedTask(stage, task, start, None, False)
    return AuditedTask(stage, task, start, own, stage.is_passed(task, own))
