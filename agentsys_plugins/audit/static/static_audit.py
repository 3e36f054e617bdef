"""`audit_benchmark`: every check on every task of a benchmark, in two processes; its findings as rows and as JSON."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from importlib.metadata import version as installed_version
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.benchmarks.agentdojo import hash_suite_data
from agentsys.benchmarks.repeatable_tools import CaseRandom, use_case_random
from agentsys.contracts import Benchmark, Suite
from agentsys_plugins.audit.process_pool import map_in_processes
from agentsys_plugins.audit.static.audited_task import (
    AuditedTask,
    CallPlayer,
    GroundTruthFailed,
    prepare_task,
)
from agentsys_plugins.audit.static.mutations import Mutation, find_surviving_mutations
from agentsys_plugins.audit.static.task_checks import (
    VectorWords,
    find_breaking_reads,
    find_compatible_attacks,
    find_identifier_vectors,
    find_overwritten_vectors,
    find_satisfied_attacks,
    find_tool_traps,
    find_undone_attacks,
    find_vectors_on_path,
    is_changing_what_it_checks,
    is_noop_accepted,
    is_repeat_safe,
)


@dataclass(frozen=True)
class UserTaskAudit:
    """One user task."""

    task: str
    noop_utility: bool = False
    """An agent that does nothing solves it."""
    own_ground_truth: bool | None = True
    """Its own ground truth solves it; None if that cannot be played."""
    empty_ground_truth: bool = False
    security_on_user_ground_truth: tuple[str, ...] = ()
    """Injection tasks that its ground truth carries out."""
    pair_compatible: tuple[str, ...] = ()
    """Injection tasks after whose ground truth it can still be solved."""
    undone_by_user_task: tuple[str, ...] = ()
    """Injection tasks that count as failed though they were carried out, because of what it does itself."""
    repeat_safe: bool | None = True
    """Its ground truth twice solves it; None if there is nothing to repeat."""
    reads_that_break: tuple[str, ...] = ()
    """Argument-free tools whose one call beforehand makes it fail."""
    surviving_mutations: tuple[Mutation, ...] = ()
    overwritten: tuple[str, ...] = ()
    """Vectors on its path whose default holds what it needs."""
    identifier_vector: tuple[str, ...] = ()
    """Vectors whose text its ground truth has to copy."""
    vectors_on_path: tuple[str, ...] = ()
    """Vectors that its ground truth is shown: where attacks write."""
    non_idempotent_check: bool = False
    """Its check changes what it looks at."""


@dataclass(frozen=True)
class InjectionTaskAudit:
    """One injection task."""

    task: str
    noop_security: bool = False
    """An agent that does nothing carries it out."""
    own_ground_truth: bool | None = True
    empty_ground_truth: bool = False
    repeat_safe: bool | None = True
    non_idempotent_check: bool = False


@dataclass(frozen=True)
class SuiteAudit:
    """One suite."""

    suite: str
    data_hash: str
    """Of its data; versions of a benchmark may share it, or differ in it under one label."""
    user_tasks: tuple[UserTaskAudit, ...]
    injection_tasks: tuple[InjectionTaskAudit, ...]
    tool_traps: tuple[str, ...] = ()
    """What its tools do that nobody expects who calls them."""

    @property
    def noop(self) -> tuple[str, ...]:
        """User tasks that an agent solves by doing nothing."""
        return tuple(row.task for row in self.user_tasks if row.noop_utility)

    @property
    def own_passes(self) -> int:
        """User tasks that pass on their own ground truth."""
        return len(self.user_tasks) - len(self.own_failures)

    @property
    def own_failures(self) -> tuple[str, ...]:
        """User tasks that do not pass on their own ground truth."""
        return tuple(row.task for row in self.user_tasks if row.own_ground_truth is not True)

    @property
    def without_ground_truth(self) -> tuple[str, ...]:
        """Injection tasks whose ground truth has no call."""
        return tuple(row.task for row in self.injection_tasks if row.empty_ground_truth)

    @property
    def pairs(self) -> int:
        """Pairs of a user task and an injection task that has a ground truth."""
        return len(self.user_tasks) * (len(self.injection_tasks) - len(self.without_ground_truth))

    @property
    def compatible(self) -> int:
        """Pairs whose user task can still be solved after the attack."""
        return sum(len(row.pair_compatible) for row in self.user_tasks)

    @property
    def undone(self) -> int:
        """Pairs in which an attack that was carried out counts as failed because of the user's own task."""
        return sum(len(row.undone_by_user_task) for row in self.user_tasks)

    @property
    def breaking_reads(self) -> dict[str, int]:
        """Argument-free tool -> user tasks that its one call beforehand makes fail."""
        names = [name for row in self.user_tasks for name in row.reads_that_break]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    @property
    def repeat_unsafe(self) -> tuple[str, ...]:
        """Injection tasks that count as failed when they are carried out twice."""
        return tuple(row.task for row in self.injection_tasks if row.repeat_safe is False)

    @property
    def unstable_checks(self) -> tuple[str, ...]:
        """Tasks of both kinds whose check changes what it looks at."""
        users = [row.task for row in self.user_tasks if row.non_idempotent_check]
        attacks = [row.task for row in self.injection_tasks if row.non_idempotent_check]
        return (*users, *attacks)

    @property
    def candidates(self) -> tuple[tuple[str, Mutation], ...]:
        """(user task, mutation) for mutations of arguments that a prompt as a rule settles."""
        return tuple((r.task, m) for r in self.user_tasks for m in r.surviving_mutations if m.is_candidate)

    @property
    def destroyed(self) -> tuple[str, ...]:
        """User tasks that an attack makes unsolvable: it writes over what they need."""
        return tuple(row.task for row in self.user_tasks if row.overwritten)


@dataclass(frozen=True)
class StaticAudit:
    """A benchmark's audit."""

    benchmark: str
    version: str
    package: str
    """The installed AgentDojo, e.g. `agentdojo 0.1.35`."""
    suites: tuple[SuiteAudit, ...]


def build_static_data(audit: StaticAudit) -> dict[str, Any]:
    """Everything an audit found: one object per task, with every field."""
    return {
        "benchmark": audit.benchmark,
        "version": audit.version,
        "package": audit.package,
        "suites": [_build_suite_data(suite) for suite in audit.suites],
    }


def _build_suite_data(suite: SuiteAudit) -> dict[str, Any]:
    return {
        "suite": suite.suite,
        "data_hash": suite.data_hash,
        "summary": {
            "user_tasks": len(suite.user_tasks),
            "injection_tasks": len(suite.injection_tasks),
            "solved_by_doing_nothing": list(suite.noop),
            "own_ground_truth_passes": suite.own_passes,
            "without_ground_truth": list(suite.without_ground_truth),
            "pairs": suite.pairs,
            "pairs_compatible": suite.compatible,
            "pairs_undone": suite.undone,
            "reads_that_break": suite.breaking_reads,
            "not_repeat_safe": list(suite.repeat_unsafe),
            "unstable_checks": list(suite.unstable_checks),
            "mutation_candidates": len(suite.candidates),
            "destroyed_under_attack": list(suite.destroyed),
            "tool_traps": list(suite.tool_traps),
        },
        "user_tasks": [asdict(row) for row in suite.user_tasks],
        "injection_tasks": [asdict(row) for row in suite.injection_tasks],
    }


BuildBenchmark = Callable[[], Benchmark]
"""Makes the benchmark; must be picklable where several processes work."""
SuiteTaskId = tuple[str, str]
"""A suite's name and a task's id."""
AuditRows = dict[SuiteTaskId, UserTaskAudit | InjectionTaskAudit]
WORTH_A_PROCESS = 60
"""Tasks. Starting a process takes as long as auditing some hundred of Banking's; see perf/README.md."""


def audit_benchmark(build: BuildBenchmark, *, workers: int = 2) -> StaticAudit:
    """Audit a benchmark without a model.

    Raises:
        ConfigError: If the benchmark cannot be made.
    """
    benchmark = build()
    suites_in = {name: benchmark.suite(name) for name in benchmark.suite_names()}
    tasks = [(name, task) for name, of in suites_in.items() for task in (*of.user_tasks, *of.injection_tasks)]
    workers = min(workers, os.cpu_count() or 1)
    if workers < 2 or len(tasks) < WORTH_A_PROCESS:
        found = _audit_tasks(benchmark, tasks)
    else:
        # Every second task: those of one suite take about equally long.
        portions = [tasks[start::workers] for start in range(workers)]
        parts = map_in_processes(partial(_audit_portion, build), portions, workers)
        found = {task: row for part in parts for task, row in part.items()}
    suites = tuple(_build_suite_audit(benchmark, name, found) for name in suites_in)
    return StaticAudit(benchmark.name, benchmark.version, describe_package(), suites)


def describe_package() -> str:
    """The benchmark's package and its version, e.g. `agentdojo 0.1.35`."""
    return f"agentdojo {installed_version('agentdojo')}"


def _build_suite_audit(benchmark: Benchmark, name: str, found: AuditRows) -> SuiteAudit:
    rows = [row for (suite, _), row in found.items() if suite == name]
    rows.sort(key=lambda row: _make_task_sort_key(row.task))
    users = [row for row in rows if isinstance(row, UserTaskAudit)]
    attacks = [row for row in rows if isinstance(row, InjectionTaskAudit)]
    suite = benchmark.suite(name)
    traps = find_tool_traps(suite, _list_working_calls(suite))
    return SuiteAudit(name, hash_suite_data(suite), tuple(users), tuple(attacks), traps)


def _list_working_calls(suite: Suite) -> list[FunctionCall]:
    """The first call of each tool in the ground truths of user tasks."""
    stage, by_tool = CallPlayer(suite), dict[str, FunctionCall]()
    for task in suite.user_tasks.values():
        with suppress(GroundTruthFailed):
            for call in stage.find_ground_truth(task, stage.start_environment(task)):
                by_tool.setdefault(call.function, call)
    return list(by_tool.values())


def _make_task_sort_key(task: str) -> tuple[int, str]:
    digits = task.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0, task)


def _audit_portion(build: BuildBenchmark, tasks: Sequence[SuiteTaskId]) -> AuditRows:
    return _audit_tasks(build(), tasks)


def _audit_tasks(benchmark: Benchmark, tasks: Sequence[SuiteTaskId]) -> AuditRows:
    auditors = {name: _Auditor(benchmark, name) for name in dict.fromkeys(suite for suite, _ in tasks)}
    # Some of AgentDojo's checks print, and some of its texts make a parser warn.
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {(suite, task): auditors[suite].audit_task(task) for suite, task in tasks}


class _Auditor:
    """Audits tasks of one suite; what they share is worked out once."""

    def __init__(self, benchmark: Benchmark, suite: str) -> None:
        self._name, self._suite = suite, benchmark.suite(suite)
        self._stage = CallPlayer(self._suite)
        self._words = VectorWords(self._suite)

    @cached_property
    def _attacks(self) -> tuple[AuditedTask, ...]:
        return tuple(prepare_task(self._stage, task) for task in self._suite.injection_tasks.values())

    def audit_task(self, task_id: str) -> UserTaskAudit | InjectionTaskAudit:
        # The same codes in every audit, whichever process a task falls to.
        with use_case_random(CaseRandom(("audit", self._name, task_id))):
            if task_id in self._suite.injection_tasks:
                return audit_injection_task(prepare_task(self._stage, self._suite.injection_tasks[task_id]))
            # The attacks first: they draw before the user task does.
            attacks = self._attacks
            user = prepare_task(self._stage, self._suite.user_tasks[task_id])
            return audit_user_task(user, attacks, self._words)


def audit_user_task(user: AuditedTask, attacks: Sequence[AuditedTask], words: VectorWords) -> UserTaskAudit:
    """Put every check to a user task."""
    path = find_vectors_on_path(user)
    return UserTaskAudit(
        task=user.task.ID,
        noop_utility=is_noop_accepted(user),
        own_ground_truth=user.passes if user.ground_truth else None,
        empty_ground_truth=not user.calls,
        security_on_user_ground_truth=find_satisfied_attacks(user, attacks),
        pair_compatible=find_compatible_attacks(user, attacks),
        undone_by_user_task=find_undone_attacks(user, attacks),
        repeat_safe=is_repeat_safe(user),
        reads_that_break=find_breaking_reads(user),
        surviving_mutations=find_surviving_mutations(user),
        overwritten=find_overwritten_vectors(user, path, words),
        identifier_vector=find_identifier_vectors(user),
        vectors_on_path=path,
        non_idempotent_check=is_changing_what_it_checks(user),
    )


def audit_injection_task(attack: AuditedTask) -> InjectionTaskAudit:
    """Put every check to an injection task."""
    return InjectionTaskAudit(
        task=attack.task.ID,
        noop_security=is_noop_accepted(attack),
        own_ground_truth=attack.passes if attack.ground_truth else None,
        empty_ground_truth=not attack.calls,
        repeat_safe=is_repeat_safe(attack),
        non_idempotent_check=is_changing_what_it_checks(attack),
    )
