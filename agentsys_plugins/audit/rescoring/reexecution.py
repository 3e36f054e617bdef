"""Re-execution: a record's tool calls on a fresh environment, scored by one version's checks.

The environment has the record's own injections. `find_final_answer` gives, of a last message with sections,
the part that a user would see.

AgentDojo's checks are given the last message whole. A defense that writes its thoughts or its calls into
that message (DRIFT does) has them judged along with the answer, and may owe a utility to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall, TaskEnvironment
from agentdojo.types import text_content_block_from_string

from agentsys.base.payload_lines import squeeze
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment
from agentsys.benchmarks.repeatable_tools import (
    DEFAULT_CLOCK,
    CaseRandom,
    find_recorded_draws,
    parse_clock,
    repeat_calls,
    use_case_clock,
    use_case_random,
)
from agentsys.contracts import InjectionTask, Suite, UserTask
from agentsys.models.pipeline_elements import normalize_arguments
from agentsys.models.prompted_tools import ANSWER
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordedCall,
    RecordFault,
    RecordTasks,
    Trajectory,
    Unusable,
    find_suite,
    find_tasks,
    is_denial_in_label,
)


@dataclass(frozen=True)
class Reexecution:
    """The environment before a record's calls and after them. Checks must be given copies."""

    before: TaskEnvironment
    after: TaskEnvironment
    failed: tuple[bool, ...] = ()
    """Of each call that was executed, whether its tool returned an error."""


def reexecute(
    trajectory: Trajectory, tasks: RecordTasks, suite: Suite, clock: datetime | None = None
) -> Reexecution:
    """Do again what was done.

    Args:
        trajectory: A record from `read_trajectory`. Where it does not know what was injected, the vectors
            keep their defaults: then tools return other texts, and the checks judge the same calls.
        tasks: The record's tasks in the suite's version.
        suite: A suite as the harness runs it.
        clock: Time at which the clock that tools read begins; None: where the record's began, or, if it does
            not say, where any case's begins.

    Raises:
        ValueError: If an injection vector is not one of the suite's.
        InjectionBreaksEnvironment: If the environment cannot be loaded with a text.
    """
    before, after = (_build_environment(trajectory, tasks, suite) for _ in range(2))
    numbers = find_drawn_numbers(trajectory, tasks, suite)
    with (
        use_case_clock(clock or _read_clock(trajectory)),
        use_case_random(CaseRandom(("again",), numbers)),
    ):
        results = repeat_calls(suite, after, _list_calls(trajectory))
        return Reexecution(before, after, tuple(error is not None for _, error in results))


def collect_todays_results(trajectory: Trajectory, tasks: RecordTasks, suite: Suite) -> list[str]:
    """Collect what tools return to a record's calls today: errors in place of contents, as models see them.

    It takes and raises what `reexecute` does.
    """
    numbers = find_drawn_numbers(trajectory, tasks, suite)
    with use_case_clock(_read_clock(trajectory)), use_case_random(CaseRandom(("again",), numbers)):
        return _collect_texts(trajectory, tasks, suite)


def find_drawn_numbers(trajectory: Trajectory, tasks: RecordTasks, suite: Suite) -> Sequence[str | None]:
    """Find the numbers that a recorded case's tools drew at random; None for one that the record does not tell."""
    if not suite.draws_at_random or trajectory.drawn:
        return trajectory.drawn
    recorded = [call.text for call in trajectory.executed]
    return find_recorded_draws(lambda: _collect_texts(trajectory, tasks, suite), recorded)


def _collect_texts(trajectory: Trajectory, tasks: RecordTasks, suite: Suite) -> list[str]:
    results = repeat_calls(suite, _build_environment(trajectory, tasks, suite), _list_calls(trajectory))
    # At once: a later call may change the very object that an earlier one returned.
    return [error or str(tool_result_to_str(value)) for value, error in results]


def _list_calls(trajectory: Trajectory) -> list[tuple[str, Mapping[str, Any]]]:
    return [(call.function, call.args) for call in trajectory.executed]


def _read_clock(trajectory: Trajectory) -> datetime | None:
    return trajectory.clock or parse_clock(DEFAULT_CLOCK)


def _build_environment(trajectory: Trajectory, tasks: RecordTasks, suite: Suite) -> TaskEnvironment:
    loaded = suite.load_and_inject_default_environment(dict(trajectory.injections or {}))
    user_task: UserTask | InjectionTask = tasks.user
    # An injection task run alone is no user task, and AgentDojo then leaves the environment as it is.
    return user_task.init_environment(loaded) if isinstance(user_task, BaseUserTask) else loaded


def convert_calls(calls: Sequence[RecordedCall]) -> list[FunctionCall]:
    """Calls in AgentDojo's type, as its executor left them in the messages."""
    return [FunctionCall(function=call.function, args=normalize_arguments(call.args)) for call in calls]


CLOCK_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+")
"""A date with fractions of a second: taken from a clock, as no date in the benchmark's data has them."""
_PYDANTIC_LINK = re.compile(r"errors\.pydantic\.dev/[\d.]+/")
"""Errors of wrong arguments name pydantic's version."""


def is_same_text(recorded: str, today: str) -> bool:
    """True if a recorded text is what the tool returns today.

    Stamps of the clock, the library's version in an error, line breaks and quoting are passed over. So is
    the order of lines: an event's participants are a set. A recorded text with today's inside it counts as
    the same, since some defenses put marks around what a tool returns.
    """
    first, second = (_PYDANTIC_LINK.sub("", CLOCK_STAMP.sub("", text)) for text in (recorded, today))
    if first == second or squeeze(second) in squeeze(first):
        return True
    return sorted(first.splitlines()) == sorted(second.splitlines())


class CheckScores(NamedTuple):
    """The verdicts of a version's checks."""

    utility: bool
    security: bool | None
    """True: the injection task was carried out (denial of service: the user task was not). None where
    nothing was injected."""


class TaskExecution(NamedTuple):
    """An execution, and all that it takes to judge it in another way."""

    scores: CheckScores
    done: Reexecution
    suite: Suite
    tasks: RecordTasks


def score_with_execution(trajectory: Trajectory, version: str) -> TaskExecution:
    """Execute a record's calls again and ask a version's checks, each on fresh copies.

    Raises:
        Unusable: If the run errored, the version lacks its tasks, or the environment or a check fails.
        ConfigError: If there is no such version.
    """
    if trajectory.error is not None:
        raise Unusable(RecordFault.ERROR, f"recorded with an error: {trajectory.error[:80]}")
    suite = find_suite(trajectory, version)
    tasks = find_tasks(trajectory, suite, version)
    try:
        done = reexecute(trajectory, tasks, suite)
        return TaskExecution(ask_checks(trajectory, tasks, suite, done), done, suite, tasks)
    except InjectionBreaksEnvironment as error:
        raise Unusable(RecordFault.CHECK_FAILED, str(error)) from None
    except Exception as error:  # noqa: BLE001 - calls and answers are anybody's: one bad record, not the run
        reason = f"{type(error).__name__} in the environment or a check"
        raise Unusable(RecordFault.CHECK_FAILED, reason) from None


def ask_checks(trajectory: Trajectory, tasks: RecordTasks, suite: Suite, done: Reexecution) -> CheckScores:
    """The verdicts on an execution of a suite's checks, which must see copies (`agentsys.benchmarks.agentdojo`)."""
    facts = list(trajectory.answer), done.before, done.after, convert_calls(trajectory.seen_by_checks)
    utility = bool(suite._check_task_result(tasks.user, *facts))
    if tasks.injection is None:
        return CheckScores(utility, None)
    if is_denial_in_label(trajectory.attack):
        return CheckScores(utility, not utility)
    return CheckScores(utility, bool(suite._check_task_result(tasks.injection, *facts)))


_OPENING, _CLOSING = f"<{ANSWER}>", f"</{ANSWER}>"


def find_final_answer(trajectory: Trajectory) -> str | None:
    """The text of the answer section; None where the last message has none.

    A section that is not closed goes to the end.
    """
    whole = "\n".join(block["content"] for block in trajectory.answer if block["type"] == "text")
    _, opened, rest = whole.partition(_OPENING)
    return rest.partition(_CLOSING)[0] if opened else None


def score_final_answer(trajectory: Trajectory, scored: TaskExecution) -> bool | None:
    """Score the utility as if only the answer section had been judged.

    Returns:
        None where there is no such section, or the check fails on it.
    """
    answer = find_final_answer(trajectory)
    if answer is None:
        return None
    seen = convert_calls(trajectory.seen_by_checks)
    environments = scored.done.before, scored.done.after
    blocks = [text_content_block_from_string(answer)]
    try:
        return bool(scored.suite._check_task_result(scored.tasks.user, blocks, *environments, seen))
    except Exception:  # noqa: BLE001 - a check may stumble over any text; the official score stands
        return None
