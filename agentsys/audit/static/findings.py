"""`TaskFinding`: the faults of a suite's tasks in words, by finding and by task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from agentsys.audit.static.json_form import mutation_text
from agentsys.audit.static.rows import InjectionTaskAudit, SuiteAudit, UserTaskAudit
from agentsys.audit.static.task_numbers import numbers

Row = TypeVar("Row", UserTaskAudit, InjectionTaskAudit)


class TaskFinding(NamedTuple):
    """Something that holds of some tasks."""

    says: str
    tasks: tuple[str, ...]


def user_findings(suite: SuiteAudit) -> list[TaskFinding]:
    """List what was found of user tasks, in the order of the checks."""
    return _by_finding(suite.user_tasks, of_user_task, suite)


def attack_findings(suite: SuiteAudit) -> list[TaskFinding]:
    """List what was found of injection tasks, in the order of the checks."""
    return _by_finding(suite.injection_tasks, of_injection_task, suite)


def of_user_task(row: UserTaskAudit, suite: SuiteAudit) -> list[tuple[int, str]]:
    """(place of the check, what it found), for one user task; none where nothing is remarkable."""
    attacks = numbers(row.security_on_user_ground_truth)
    found = (
        ["solved by doing nothing"] * row.noop_utility,
        _of_ground_truth(row),
        [f"done honestly, satisfies injection tasks {attacks}"] * bool(row.security_on_user_ground_truth),
        _of_pairs(row, suite),
        _twice(row),
        [f"fails after a call of {tool}" for tool in row.reads_that_break],
        _wrong_values(row),
        [f"needs what {vector} overwrites" for vector in row.overwritten],
        [f"has to copy the text of {vector}" for vector in row.identifier_vector],
        _unstable(row),
    )
    return _placed(found)


def of_injection_task(row: InjectionTaskAudit, suite: SuiteAudit) -> list[tuple[int, str]]:
    """(place of the check, what it found), for one injection task."""
    idle = ["carried out by doing nothing"] * row.noop_security
    return _placed((idle, _of_ground_truth(row), _twice(row), _unstable(row)))


def _by_finding(
    rows: Iterable[Row], look: Callable[[Row, SuiteAudit], list[tuple[int, str]]], suite: SuiteAudit
) -> list[TaskFinding]:
    tasks: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        for found in look(row, suite):
            tasks.setdefault(found, []).append(row.task)
    # By the check alone: what one check found stays in the order of the tasks.
    return [
        TaskFinding(says, tuple(tasks[place, says])) for place, says in sorted(tasks, key=lambda key: key[0])
    ]


def _placed(found: Sequence[list[str]]) -> list[tuple[int, str]]:
    return [(place, text) for place, texts in enumerate(found) for text in texts]


def _of_ground_truth(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    if row.own_ground_truth is None:
        return ["has no ground truth that can be played"]
    if row.empty_ground_truth:
        passes = "" if row.own_ground_truth else ", which does not pass"
        return [f"has a ground truth without calls{passes}"]
    return [] if row.own_ground_truth else ["fails on its own ground truth"]


def _twice(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    return ["fails when done twice"] if row.repeat_safe is False else []


def _unstable(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    return ["its check changes what it checks"] if row.non_idempotent_check else []


def _of_pairs(row: UserTaskAudit, suite: SuiteAudit) -> list[str]:
    playable = len(suite.injection_tasks) - len(suite.without_ground_truth)
    if len(row.pair_compatible) == playable:
        return []
    if not row.pair_compatible:
        return ["cannot be solved after any attack"]
    return [f"can be solved after injection tasks {numbers(row.pair_compatible)} only"]


def _wrong_values(row: UserTaskAudit) -> list[str]:
    """Candidates only; the JSON has all mutations. The call's place tells nothing across tasks."""
    texts = [
        f"wrong value unnoticed: {mutation_text(mutation).partition(':')[2]} [{mutation.reviewed}]"
        for mutation in row.surviving_mutations
        if mutation.is_candidate
    ]
    return list(dict.fromkeys(texts))
