"""`sentences`: what a paper can say of the benchmark it uses, with the numbers that were found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agentsys.amounts import format_count
from agentsys.audit.static.rows import StaticAudit, SuiteAudit
from agentsys.audit.static.task_numbers import format_task_numbers

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
    parts = [f"{suite.suite} {_list_by_kind(suite.unstable_checks)}" for suite in suites if suite.unstable_checks]
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
