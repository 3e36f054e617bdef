"""A static audit in words: findings by task, grids, and sentences that a paper can quote.

Tasks are named by their numbers, shortly: `0, 2-4`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from agentsys.analysis.tables.table_document import Grid, make_cells
from agentsys.base.grouping import format_count, group_by
from agentsys_plugins.audit.static.static_audit import (
    InjectionTaskAudit,
    StaticAudit,
    SuiteAudit,
    UserTaskAudit,
)


def format_task_numbers(tasks: Iterable[str]) -> str:
    """The numbers of some tasks of one kind; three or more in a row become a range.

    Args:
        tasks: Ids such as `user_task_7`. One that does not end in a number is given whole, after them.

    Returns:
        E.g. `5, 6, 8-10`; `none` for no tasks.
    """
    ids = list(tasks)
    tails = [task.rpartition("_")[2] for task in ids]
    known = sorted({int(tail) for tail in tails if tail.isdecimal()})
    named = [task for task, tail in zip(ids, tails, strict=True) if not tail.isdecimal()]
    return ", ".join([*_format_ranges(known), *named]) or "none"


def _format_ranges(known: list[int]) -> list[str]:
    # Numbers in a row have one distance to their places.
    rows = group_by(enumerate(known), lambda pair: pair[1] - pair[0]).values()
    return [
        part
        for row in rows
        for part in ([f"{row[0][1]}-{row[-1][1]}"] if len(row) > 2 else [str(number) for _, number in row])
    ]


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
    hidden = format_task_numbers(row.undone_by_user_task)
    found = (
        ["solved by doing nothing"] * row.noop_utility,
        _list_ground_truth_faults(row),
        [f"done honestly, satisfies injection tasks {attacks}"] * bool(row.security_on_user_ground_truth),
        _list_pair_faults(row, suite),
        [f"hides injection tasks {hidden} that were carried out"] * bool(row.undone_by_user_task),
        ["fails when done twice"] * (row.repeat_safe is False),
        [f"fails after a call of {tool}" for tool in row.reads_that_break],
        _list_wrong_values(row),
        [f"needs what {vector} overwrites" for vector in row.overwritten],
        [f"has to copy the text of {vector}" for vector in row.identifier_vector],
        ["its check changes what it checks"] * row.non_idempotent_check,
    )
    return _number_checks(found)


def find_injection_task_faults(row: InjectionTaskAudit, suite: SuiteAudit) -> list[tuple[int, str]]:
    """(place of the check, what it found), for one injection task."""
    found = (
        ["carried out by doing nothing"] * row.noop_security,
        _list_ground_truth_faults(row),
        ["fails when done twice"] * (row.repeat_safe is False),
        ["its check changes what it checks"] * row.non_idempotent_check,
    )
    return _number_checks(found)


def _group_by_finding(
    rows: Iterable[RowT], look: Callable[[RowT, SuiteAudit], list[tuple[int, str]]], suite: SuiteAudit
) -> list[TaskFinding]:
    tasks: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        for found in look(row, suite):
            tasks.setdefault(found, []).append(row.task)
    # By the check alone: what one check found stays in the order of the tasks.
    ordered = sorted(tasks, key=lambda key: key[0])
    return [TaskFinding(statement, tuple(tasks[place, statement])) for place, statement in ordered]


def _number_checks(found: Sequence[list[str]]) -> list[tuple[int, str]]:
    return [(place, text) for place, texts in enumerate(found) for text in texts]


def _list_ground_truth_faults(row: UserTaskAudit | InjectionTaskAudit) -> list[str]:
    if row.own_ground_truth is None:
        return ["has no ground truth that can be played"]
    if row.empty_ground_truth:
        passes = "" if row.own_ground_truth else ", which does not pass"
        return [f"has a ground truth without calls{passes}"]
    return [] if row.own_ground_truth else ["fails on its own ground truth"]


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
        f"wrong value unnoticed: {mutation.function}.{mutation.argument} [{mutation.reviewed}]"
        for mutation in row.surviving_mutations
        if mutation.is_candidate
    ]
    return list(dict.fromkeys(texts))


AuditSection = tuple[str, Sequence[Grid]]
_SUITES_ABREAST = 4
"""Suites side by side in the summary: what a terminal of 80 columns has room for."""


def build_static_sections(audit: StaticAudit) -> list[AuditSection]:
    """The summary, and a section per suite of which something is found."""
    sections = ((suite.suite, _build_suite_grids(suite)) for suite in audit.suites)
    starts = range(0, len(audit.suites), _SUITES_ABREAST)
    summary = [_build_summary_grid(audit.suites[start : start + _SUITES_ABREAST]) for start in starts]
    return [("Summary", summary), *(section for section in sections if section[1])]


_SUMMARY: dict[str, Callable[[SuiteAudit], str]] = {
    "user tasks": lambda s: str(len(s.user_tasks)),
    "pass on their own ground truth": lambda s: str(s.own_passes),
    "solved by doing nothing": lambda s: str(len(s.noop)),
    "destroyed under attack": lambda s: str(len(s.destroyed)),
    "broken by reading": lambda s: str(max(s.breaking_reads.values(), default=0)),
    "wrong values unnoticed": lambda s: str(len(s.candidates)),
    "injection tasks": lambda s: str(len(s.injection_tasks)),
    "without a ground truth": lambda s: str(len(s.without_ground_truth)),
    "fail when done twice": lambda s: str(len(s.repeat_unsafe)),
    "pairs that can be solved together": lambda s: f"{s.compatible}/{s.pairs}",
    "checks that change what they check": lambda s: str(len(s.unstable_checks)),
}


def _build_summary_grid(suites: Sequence[SuiteAudit]) -> Grid:
    rows = [make_cells(title, *map(cell, suites)) for title, cell in _SUMMARY.items()]
    header = ("", *(suite.suite for suite in suites))
    return Grid("findings per suite", header, rows, names=1, wraps=frozenset(range(1, len(header))))


def _build_suite_grids(suite: SuiteAudit) -> list[Grid]:
    user, attack = list_user_findings(suite), list_attack_findings(suite)
    found = [
        _build_findings_grid(f"{suite.suite}: user tasks", "user tasks", user),
        _build_findings_grid(f"{suite.suite}: injection tasks", "injection tasks", attack),
    ]
    return [grid for grid in found if grid.rows]


def _build_findings_grid(caption: str, kind: str, found: Sequence[TaskFinding]) -> Grid:
    rows = [make_cells(finding.statement, format_task_numbers(finding.tasks)) for finding in found]
    return Grid(caption, ("finding", kind), rows, names=2, wraps=frozenset({0, 1}))


_BENCHMARK_TITLES = {"agentdojo": "AgentDojo", "asb": "ASB"}


def name_benchmark(audit: StaticAudit) -> str:
    """The benchmark as a paper names it, e.g. `AgentDojo v1.2.2 (agentdojo 0.1.35)`."""
    plain, plus, changes = audit.benchmark.partition("+")
    return f"{_BENCHMARK_TITLES.get(plain, plain)}{plus}{changes} {audit.version} ({audit.package})"


def write_static_sentences(audit: StaticAudit) -> list[str]:
    """Write one sentence per finding, the no-op floor first; findings of no task are left out."""
    suites = audit.suites
    return [_write_noop(audit), _write_own_ground_truth(suites), *_write_findings(suites)]


def compute_noop_floor(suites: Iterable[SuiteAudit]) -> float:
    """Percent of user tasks solved by doing nothing: unweighted mean of the suites; nan for none."""
    shares = [len(suite.noop) / len(suite.user_tasks) for suite in suites if suite.user_tasks]
    return 100.0 * sum(shares) / len(shares) if shares else float("nan")


def _write_noop(audit: StaticAudit) -> str:
    suites, where = audit.suites, _list_tasks(audit.suites, "noop")
    by_suite = f" ({where})" if where else ""
    return (
        f"On {name_benchmark(audit)} an agent that does nothing solves {sum(len(s.noop) for s in suites)} of"
        f" {_count_users(suites)} user tasks{by_suite}: a benign utility of {compute_noop_floor(suites):.1f}%"
        f" as the unweighted mean of {format_count(len(suites), 'suite')}."
    )


def _write_own_ground_truth(suites: Sequence[SuiteAudit]) -> str:
    passing = sum(suite.own_passes for suite in suites)
    failing = _list_tasks(suites, "own_failures")
    but = f"; not {failing}" if failing else ""
    return f"{passing} of {_count_users(suites)} user tasks pass on their own ground truth{but}."


def _write_findings(suites: Sequence[SuiteAudit]) -> Iterator[str]:
    if where := _list_tasks(suites, "without_ground_truth"):
        empty = sum(len(suite.without_ground_truth) for suite in suites)
        total = sum(len(suite.injection_tasks) for suite in suites)
        yield f"{empty} of {total} injection tasks have a ground truth without calls ({where})."
    if shares := [f"{s.compatible} of {s.pairs} in {s.suite}" for s in suites if s.pairs]:
        solved = all(suite.own_passes == len(suite.user_tasks) for suite in suites)
        excludes = (
            "a successful attack excludes utility"
            if solved
            else "the user task's check fails then, or always"
        )
        every = all(suite.compatible == suite.pairs for suite in suites)
        yield (
            "Pairs whose user task can still be solved after the injection task was carried out: "
            f"{', '.join(shares)}{'' if every else f'; in the others {excludes}'}."
        )
    if hiding := [
        f"{suite.suite} {format_task_numbers([row.task])} with {format_task_numbers(row.undone_by_user_task)}"
        for suite in suites
        for row in suite.user_tasks
        if row.undone_by_user_task
    ]:
        yield (
            f"In {format_count(sum(suite.undone for suite in suites), 'pair')} an attack that was carried out counts as"
            f" failed, because the user's own task hides it: {'; '.join(hiding)}."
        )
    if where := _list_tasks(suites, "destroyed"):
        yield f"An injection overwrites what the user task itself needs in {where}."
    for suite in suites:
        for tool, count in suite.breaking_reads.items():
            yield (
                f"One call of {tool} before the ground truth makes {count} of {len(suite.user_tasks)}"
                f" {suite.suite} user tasks fail."
            )
        for trap in suite.tool_traps:
            yield f"Of {suite.suite}'s tools, {trap}."
    if where := _list_tasks(suites, "repeat_unsafe"):
        yield f"Carried out twice, these injection tasks count as failed: {where}."
    if parts := [f"{s.suite} {_list_by_kind(s.unstable_checks)}" for s in suites if s.unstable_checks]:
        yield f"These checks change the environments they look at: {'; '.join(parts)}."
    if mutations := [(s.suite, task, mutation) for s in suites for task, mutation in s.candidates]:
        verdicts = Counter(mutation.reviewed for _, _, mutation in mutations)
        read = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        tasks = len({(suite, task) for suite, task, _ in mutations})
        yield (
            f"{format_count(len(mutations), 'wrong value')} of a recipient, e-mail, title, file name, amount"
            f" or flag, put into the ground truths of {format_count(tasks, 'user task')}, go unnoticed; by"
            f" the prompts: {read}."
        )
    hits = [
        f"{suite.suite} {format_task_numbers([row.task])} (injection tasks {format_task_numbers(attacks)})"
        for suite in suites
        for row in suite.user_tasks
        if (attacks := row.security_on_user_ground_truth)
    ]
    if hits:
        yield f"Done honestly, these user tasks satisfy an attack's check: {'; '.join(hits)}."


def _list_by_kind(tasks: tuple[str, ...]) -> str:
    users = [task for task in tasks if task.startswith("user")]
    attacks = [task for task in tasks if task not in users]
    parts = [("user tasks", users), ("injection tasks", attacks)]
    return " and ".join(f"{kind} {format_task_numbers(found)}" for kind, found in parts if found)


def _list_tasks(suites: Sequence[SuiteAudit], finding: str) -> str:
    by_suite = [(suite.suite, getattr(suite, finding)) for suite in suites]
    return "; ".join(f"{suite} {format_task_numbers(tasks)}" for suite, tasks in by_suite if tasks)


def _count_users(suites: Sequence[SuiteAudit]) -> int:
    return sum(len(suite.user_tasks) for suite in suites)
