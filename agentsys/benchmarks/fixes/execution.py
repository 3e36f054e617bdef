"""`Execution`: one finished case as AgentDojo's own check is given it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import FunctionCall, TaskEnvironment
from agentdojo.task_suite.task_suite import functions_stack_trace_from_messages
from agentdojo.types import ChatMessage, MessageContentBlock

from agentsys.benchmarks.scoring import SuiteCheck, SuiteTask, select_scored_calls
from agentsys.models.trace import Tracer


@dataclass
class ScoredExecution:
    """The case as a fix may look at it. Nothing of it may be changed."""

    suite: str
    """The suite's name."""
    user_task: BaseUserTask[TaskEnvironment]
    injection_task: BaseInjectionTask[TaskEnvironment] | None
    before: TaskEnvironment
    after: TaskEnvironment
    messages: Sequence[ChatMessage]
    """What the scored run of the pipeline returned."""
    tracer: Tracer
    package_check: SuiteCheck
    """AgentDojo's own check, on whatever it is given (no copies)."""

    @property
    def answer(self) -> list[MessageContentBlock]:
        """The answer as AgentDojo takes it: the last message's content."""
        return (self.messages[-1]["content"] if self.messages else None) or []

    @cached_property
    def calls(self) -> Sequence[FunctionCall]:
        """The calls that checks may look at."""
        return select_scored_calls(functions_stack_trace_from_messages(self.messages), self.tracer)

    def passes(self, task: SuiteTask, after: TaskEnvironment) -> bool:
        """AgentDojo's own verdict on a task, had the environment ended like this."""
        return bool(self.package_check(task, self.answer, self.before, after, self.calls))


def is_packaged(task: SuiteTask) -> bool:
    """Say whether a task is the package's own. What a fork registers under the same id is left alone."""
    return type(task).__module__.startswith("agentdojo.")
