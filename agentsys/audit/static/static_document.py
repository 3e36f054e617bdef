"""A static audit in words: findings by task, grids, and sentences that a paper can quote.

Tasks are named by their numbers, shortly: `0, 2-4`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from agentsys.analysis.tables.table_document import Grid, cells
from agentsys.audit.static.static_rows import (
    InjectionTaskAudit,
    StaticAudit,
    SuiteAudit,
    UserTaskAudit,
    format_mutation,
)
from agentsys.base.grouping import format_count


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
    runs: list[list[int]] = []
    for number in known:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [part for run in runs for part in _format_run(run)]


def _format_run(run: list[int]) -> list[str]:
    return [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run]


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
    return _number_checks(
        (idle, _list_ground_truth_faults(row), _list_repeat_faults(row), _list_unstable_checks(row))
    )


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


AuditSection = tuple[str, Sequence[Grid]]
_EMPTY_CELL = "-"
_SUITES_ABREAST = 4
"""Suites side by side in the summary: what a terminal of 80 columns has room for."""


def build_static_sections(audit: StaticAudit, *, every_task: bool = False) -> list[AuditSection]:
    """The summary, and a section per suite of which something is found, or `every_task` is told."""
    sections = ((suite.suite, _build_suite_grids(suite, every_task)) for suite in audit.suites)
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
    rows = [cells(title, *map(cell, suites)) for title, cell in _SUMMARY.items()]
    header = ("", *(suite.suite for suite in suites))
    return Grid("findings per suite", header, rows, names=1, wraps=frozenset(range(1, len(header))))


def _build_suite_grids(suite: SuiteAudit, every_task: bool) -> list[Grid]:
    found = [
        _build_findings_grid(f"{suite.suite}: user tasks", "user tasks", list_user_findings(suite)),
        _build_findings_grid(
            f"{suite.suite}: injection tasks", "injection tasks", list_attack_findings(suite)
        ),
    ]
    single = [_build_user_grid(suite), _build_attack_grid(suite)] if every_task else []
    return [grid for grid in [*found, *single] if grid.rows]


def _build_findings_grid(caption: str, kind: str, found: Sequence[TaskFinding]) -> Grid:
    rows = [cells(finding.statement, format_task_numbers(finding.tasks)) for finding in found]
    return Grid(caption, ("finding", kind), rows, names=2, wraps=frozenset({0, 1}))


def _build_user_grid(suite: SuiteAudit) -> Grid:
    columns = _choose_user_columns(suite)
    rows = [
        cells(
            row.task,
            *(cell(row) for cell in columns.values()),
            _join_names(find_user_task_faults(row, suite)),
        )
        for row in suite.user_tasks
    ]
    header = ("user task", *columns, "findings")
    caption = f"{suite.suite}: every user task"
    return Grid(caption, header, rows, names=len(header), wraps=frozenset({len(header) - 1}))


def _choose_user_columns(suite: SuiteAudit) -> dict[str, Callable[[UserTaskAudit], str]]:
    """Columns told of every task; nothing that a suite has nothing for."""
    columns: dict[str, Callable[[UserTaskAudit], str]] = {}
    if suite.pairs:
        columns["solved after"] = lambda row: (
            format_task_numbers(row.pair_compatible) if row.pair_compatible else _EMPTY_CELL
        )
    if any(row.vectors_on_path for row in suite.user_tasks):
        columns["vectors"] = lambda row: str(len(row.vectors_on_path))
    return columns


def _build_attack_grid(suite: SuiteAudit) -> Grid:
    rows = [
        cells(row.task, _join_names(find_injection_task_faults(row, suite))) for row in suite.injection_tasks
    ]
    header = ("injection task", "findings")
    return Grid(f"{suite.suite}: every injection task", header, rows, names=2, wraps=frozenset({1}))


def _join_names(found: Sequence[tuple[int, str]]) -> str:
    return "; ".join(text for _, text in found) or _EMPTY_CELL


_BENCHMARK_TITLES = {"agentdojo": "AgentDojo", "asb": "ASB"}


def name_benchmark(audit: StaticAudit) -> str:
    """The benchmark as a paper names it, e.g. `AgentDojo v1.2.2 (agentdojo 0.1.35)`."""
    plain, plus, changes = audit.benchmark.partition("+")
    return f"{_BENCHMARK_TITLES.get(plain, plain)}{plus}{changes} {audit.version} ({audit.package})"


def write_static_sentences(audit: StaticAudit) -> list[str]:
    """One sentence per finding, the no-op floor first; findings of none are left out, save the floor's."""
    suites = audit.suites
    found = [
        _write_noop(audit),
        _write_own_ground_truth(suites),
        _write_empty_ground_truth(suites),
        _write_pairs(suites),
        _write_destroyed(suites),
        *_write_reads(suites),
        _write_repeats(suites),
        _write_unstable(suites),
        _write_mutations(suites),
        _write_honest_attacks(suites),
    ]
    return [sentence for sentence in found if sentence]


def compute_noop_floor(suites: Iterable[SuiteAudit]) -> float:
    """Percent of user tasks solved by doing nothing: unweighted mean of the suites; nan for none."""
    shares = [len(suite.noop) / len(suite.user_tasks) for suite in suites if suite.user_tasks]
    return 100.0 * sum(shares) / len(shares) if shares else float("nan")


def _write_noop(audit: StaticAudit) -> str:
    solved = sum(len(suite.noop) for suite in audit.suites)
    where = _list_tasks(audit.suites, "noop")
    by_suite = f" ({where})" if where else ""
    return (
        f"On {name_benchmark(audit)} an agent that does nothing solves {solved} of {_count_users(audit.suites)} user tasks"
        f"{by_suite}: a benign utility of {compute_noop_floor(audit.suites):.1f}% as the unweighted mean of"
        f" {format_count(len(audit.suites), 'suite')}."
    )


def _write_own_ground_truth(suites: tuple[SuiteAudit, ...]) -> str:
    passing = sum(suite.own_passes for suite in suites)
    failing = [
        f"{suite.suite} {format_task_numbers(row.task for row in suite.user_tasks if row.own_ground_truth is not True)}"
        for suite in suites
        if suite.own_passes < len(suite.user_tasks)
    ]
    but = f"; not {'; '.join(failing)}" if failing else ""
    return f"{passing} of {_count_users(suites)} user tasks pass on their own ground truth{but}."


def _write_empty_ground_truth(suites: tuple[SuiteAudit, ...]) -> str:
    where = _list_tasks(suites, "without_ground_truth")
    count = sum(len(suite.without_ground_truth) for suite in suites)
    of = sum(len(suite.injection_tasks) for suite in suites)
    return f"{count} of {of} injection tasks have a ground truth without calls ({where})." if where else ""


def _write_pairs(suites: tuple[SuiteAudit, ...]) -> str:
    shares = [f"{suite.compatible} of {suite.pairs} in {suite.suite}" for suite in suites if suite.pairs]
    if not shares:
        return ""
    every = all(suite.compatible == suite.pairs for suite in suites)
    solved = all(suite.own_passes == len(suite.user_tasks) for suite in suites)
    excludes = (
        "a successful attack excludes utility" if solved else "the user task's check fails then, or always"
    )
    rest = "" if every else f"; in the others {excludes}"
    return (
        "Pairs whose user task can still be solved after the injection task was carried out: "
        f"{', '.join(shares)}{rest}."
    )


def _write_destroyed(suites: tuple[SuiteAudit, ...]) -> str:
    where = _list_tasks(suites, "destroyed")
    return f"An injection overwrites what the user task itself needs in {where}." if where else ""


def _write_reads(suites: tuple[SuiteAudit, ...]) -> list[str]:
    return [
        f"One call of {tool} before the ground truth makes {count} of {len(suite.user_tasks)}"
        f" {suite.suite} user tasks fail."
        for suite in suites
        for tool, count in suite.breaking_reads.items()
    ]


def _write_repeats(suites: tuple[SuiteAudit, ...]) -> str:
    where = _list_tasks(suites, "repeat_unsafe")
    return f"Carried out twice, these injection tasks count as failed: {where}." if where else ""


def _write_unstable(suites: tuple[SuiteAudit, ...]) -> str:
    parts = [
        f"{suite.suite} {_list_by_kind(suite.unstable_checks)}" for suite in suites if suite.unstable_checks
    ]
    return f"These checks change the environments they look at: {'; '.join(parts)}." if parts else ""


def _list_by_kind(tasks: tuple[str, ...]) -> str:
    users = [task for task in tasks if task.startswith("user")]
    attacks = [task for task in tasks if task not in users]
    parts = [("user tasks", users), ("injection tasks", attacks)]
    return " and ".join(f"{kind} {format_task_numbers(found)}" for kind, found in parts if found)


def _write_mutations(suites: tuple[SuiteAudit, ...]) -> str:
    found = [(suite.suite, task, mutation) for suite in suites for task, mutation in suite.candidates]
    if not found:
        return ""
    verdicts = Counter(mutation.reviewed for _, _, mutation in found)
    read = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    tasks = len({(suite, task) for suite, task, _ in found})
    return (
        f"{format_count(len(found), 'wrong value')} of a recipient, e-mail, title, file name, amount or flag, put"
        f" into the ground truths of {format_count(tasks, 'user task')}, go unnoticed; by the prompts: {read}."
    )


def _write_honest_attacks(suites: tuple[SuiteAudit, ...]) -> str:
    hits = [
        f"{suite.suite} {format_task_numbers([row.task])} (injection tasks {format_task_numbers(row.security_on_user_ground_truth)})"
        for suite in suites
        for row in suite.user_tasks
        if row.security_on_user_ground_truth
    ]
    return f"Done honestly, these user tasks satisfy an attack's check: {'; '.join(hits)}." if hits else ""


def _list_tasks(suites: tuple[SuiteAudit, ...], finding: str) -> str:
    """`banking 5, 6; slack 2`, for the suites that have any."""
    found = [(suite.suite, getattr(suite, finding)) for suite in suites]
    return "; ".join(f"{suite} {format_task_numbers(tasks)}" for suite, tasks in found if tasks)


def _count_users(suites: tuple[SuiteAudit, ...]) -> int:
    return sum(len(suite.user_tasks) for suite in suites)
