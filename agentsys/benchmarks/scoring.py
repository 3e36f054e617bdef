"""Checks of finished cases: each sees copies, and calls that really ran."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import ref

from agentdojo.functions_runtime import FunctionCall, TaskEnvironment
from agentdojo.types import MessageContentBlock

from agentsys.benchmarks.shared_copies import are_equal, deep_copy, copy_environments
from agentsys.contracts import InjectionTask, UserTask
from agentsys.models.trace import Tracer, current_tracer

SuiteTask: TypeAlias = UserTask | InjectionTask
SuiteCheck = Callable[
    [SuiteTask, list[MessageContentBlock], TaskEnvironment, TaskEnvironment, Sequence[FunctionCall]], bool
]
"""`TaskSuite._check_task_result`: task, answer, environment before, environment after, calls -> passed."""


def check_on_copies(check: SuiteCheck) -> SuiteCheck:
    """AgentDojo's check, made repeatable.

    Three Workspace checks mark mail as read in the environments they are given, so that a second
    check of the same case sees another world (agentdojo 0.1.35, injection tasks 6, 8 and 9).
    """
    unchanged = _ReusableCopies()

    def checked(
        task: SuiteTask,
        model_output: list[MessageContentBlock],
        pre_environment: TaskEnvironment,
        task_environment: TaskEnvironment,
        functions_stack_trace: Sequence[FunctionCall],
    ) -> bool:
        calls = select_scored_calls(functions_stack_trace, current_tracer())
        again = unchanged.take(pre_environment, task_environment)
        before, after = again or copy_environments(pre_environment, task_environment)
        try:
            passed = check(task, model_output, before, after, calls)
        except Exception:  # noqa: BLE001 - whatever it was: it comes again below, or came of the sharing
            pass
        else:
            # It also finds a change of the originals since copies were made for the case's first check.
            if are_equal(before, pre_environment) and are_equal(after, task_environment):
                if again is None:
                    unchanged.keep(pre_environment, task_environment, (before, after))
                return passed
        # It changed what it was given, perhaps on both sides at once: on copies that share nothing.
        before, after = deep_copy(pre_environment), deep_copy(task_environment)
        return check(task, model_output, before, after, calls)

    vars(checked)["on_copies"] = True  # see `copied_quickly`
    return checked


class _ReusableCopies(threading.local):
    """The copies that a thread's last check left as they were, for the second check of its case.

    Making them takes longer than most checks do. They are given out once: an attacked case has two checks.
    """

    def __init__(self) -> None:
        self._originals: tuple[ref[TaskEnvironment], ref[TaskEnvironment]] | None = None
        self._copies: tuple[TaskEnvironment, TaskEnvironment] | None = None

    def keep(
        self, before: TaskEnvironment, after: TaskEnvironment, copies: tuple[TaskEnvironment, TaskEnvironment]
    ) -> None:
        """Keep copies of two environments, and neither of the two alive."""
        self._originals, self._copies = (ref(before), ref(after)), copies

    def take(
        self, before: TaskEnvironment, after: TaskEnvironment
    ) -> tuple[TaskEnvironment, TaskEnvironment] | None:
        """The copies of these very environments, if the last check had them; whatever was kept is let go."""
        originals, copies = self._originals, self._copies
        self._originals = self._copies = None
        if originals is None or originals[0]() is not before or originals[1]() is not after:
            return None
        return copies


def select_scored_calls(in_messages: Sequence[FunctionCall], tracer: Tracer) -> Sequence[FunctionCall]:
    """The calls that checks may look at.

    A few checks look at calls and not at the environment. AgentDojo takes them from the returned
    messages; a defense may execute calls in inner agents whose messages it does not return, and may
    refuse calls that stand in them: a refused call did nothing.

    Args:
        in_messages: The calls of the returned messages' assistant turns.
        tracer: The case's trace. Only the scored run of the pipeline counts: AgentDojo, too,
            looks at the messages of the last of its up to three runs.

    Returns:
        `in_messages` itself if every executed call stands there and none was refused; else the executed
        calls, in order.
    """
    last_run = [index for index, attempt in enumerate(tracer.executed_attempts) if attempt == tracer.attempt]
    executed = [tracer.executed_calls[index][:2] for index in last_run]
    refused = tracer.attempt in tracer.refused_attempts
    if not refused and all(any(_is_executed_call(call, name, args) for call in in_messages) for name, args in executed):
        return in_messages
    return [FunctionCall(function=name, args=dict(args)) for name, args in executed]


def _is_executed_call(call: FunctionCall, name: str, args: Mapping[str, Any]) -> bool:
    """Say whether a call in a message is the executed one; it may declare more (AgentSys adds an intent)."""
    return call.function == name and all(
        key in call.args and call.args[key] == value for key, value in args.items()
    )
