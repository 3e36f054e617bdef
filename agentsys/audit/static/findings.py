"""`TaskFinding`: the faults of a suite's tasks in words, by finding and by task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from agentsys.audit.static.json_form import format_mutation
from agentsys.audit.static.rows import InjectionTaskAudit, SuiteAudit, UserTaskAudit
from agentsys.audit.static.task_numbers import format_task_numbers

RowT = TypeVar("RowT", UserTaskAudit, InjectionTaskAudit)


class TaskFinding(NamedTuple):
    """Something that holds of some tasks."""

    statement: str
    tasks: tuple[str, ...]


def list_user_findings(suite: SuiteAudit) -> list[TaskFinding]:
    """List what was found of user tasks, in the order of the checks."""
    return _group_by_finding(suite.user_tasks, find_user_task_faults, suite)


def list_attack_findings(suite: SuiteAudit) -> list[TaskFinding]:
    """List what was found of injection tasks, in the order of the checks."""
    return _group_by_finding(suite.injection_tasks, find_injection_task_faults, suite)


def find_user_task_faults(row: UserTaskAudit, suite: SuiteAudit) -> list[tuple[int, str]]:
    """(place of the check, what it found), for one user task; none where nothing is remarkable."""
    attacks = format_task_numbers(row.security_on_user_ground_truth)
    found = (
        ["solved by doing nothing"] * row.noop_utility,
        _list_ground_truth_faults(row),
        [f"done honestly, satisfies injection tasks {attacks}"] * bool(row.security_on_user_ground_truth),
        _list_pair_faults(row, suite),
        _list_repeat_faults(row),
        [f"fails after a call of {tool}" for tool in row.reads_that_break],
        _list_wrong_values(row),
        [f"needs what {vector} overwrites" for vector in row.overwritten],
        [f"has to copy the text of {vector}" for vector in row.identifier_vector],
        _list_unstable_checks(row),
    )
    return _number_checks(found)


def find_injection_task_faults(row: InjectionTaskAudit, suite: SuiteAudit) -> list[tuple[int, str]]:
    """(place of the check, what it found), for one injection task."""
    idle = ["carried out by doing nothing"] * row.noop_security
    return _number_checks((idle, _list_ground_truth_faults(row), _list_repeat_faults(row), _list_unstable_checks(row)))


def _group_by_finding(
    rows: Iterable[RowT], look: Callable[[RowT, SuiteAudit], list[tuple[int, str]]], suite: SuiteAudit
) -> list[TaskFinding]:
    tasks: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        for found in look(row, suite):
            tasks.setdefault(found, []).append(row.task)
    # By the check alone: what one check found stays in the order of the tasks.
    return [
        TaskFinding(says, tuple(tasks[place, says])) for place, says in sorted(tasks, key=lambda key: key[0])
    ]


def _number_checks(found: Sequence[list[str]]) -> list[tuple[int, str]]:
    return [(place, text) for place, texts in enumerate(found) for text in texts]


def _list_ground_truth_faults(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    if row.own_ground_truth is None:
        return ["has no ground truth that can be played"]
    if row.empty_ground_truth:
        passes = "" if row.own_ground_truth else ", which does not pass"
        return [f"has a ground truth without calls{passes}"]
    return [] if row.own_ground_truth else ["fails on its own ground truth"]


def _list_repeat_faults(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    return ["fails when done twice"] if row.repeat_safe is False else []


def _list_unstable_checks(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    return ["its check changes what it checks"] if row.non_idempotent_check else []


def _list_pair_faults(row: UserTaskAudit, suite: SuiteAudit) -> list[str]:
    playable = len(suite.injection_tasks) - len(suite.without_ground_truth)
    if len(row.pair_compatible) == playable:
        return []
    if not row.pair_compatible:
        return ["cannot be solved after any attack"]
    return [f"can be solved after injection tasks {format_task_numbers(row.pair_compatible)} only"]


def _list_wrong_values(row: UserTaskAudit) -> list[str]:
    """Candidates only; the JSON has all mutations. The call's place tells nothing across tasks."""
    texts = [
        f"wrong value unnoticed: {format_mutation(mutation).partition(':')[2]} [{mutation.reviewed}]"
        for mutation in row.surviving_mutations
        if mutation.is_candidate
    ]
    return list(dict.fromkeys(texts))
