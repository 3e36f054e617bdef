"""`static_audit`: every check on every task of a benchmark, in two processes."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib.metadata import version as installed_version

from agentsys.audit.static.audited_task import Stage, Subject, subject_of
from agentsys.audit.static.checks import (
    attacks_satisfied,
    compatible_attacks,
    empty_ground_truth,
    identifier_vectors,
    noop_passes,
    overwritten,
    own_ground_truth,
    reads_that_break,
    repeat_safe,
    vectors_on_path,
)
from agentsys.audit.static.mutations import surviving_mutations
from agentsys.audit.static.rows import (
    InjectionTaskAudit,
    StaticAudit,
    SuiteAudit,
    UserTaskAudit,
)
from agentsys.audit.static.unstable_checks import changes_what_it_checks
from agentsys.audit.static.vector_words import VectorWords
from agentsys.benchmarks.case_random import CaseRandom, drawing
from agentsys.benchmarks.data_hash import data_hash
from agentsys.contracts import Benchmark
from agentsys.fresh_processes import in_processes

Build = Callable[[], Benchmark]
"""Makes the benchmark; must be picklable where several processes work."""
Rows = tuple[UserTaskAudit | InjectionTaskAudit, ...]
WORTH_A_PROCESS = 60
"""Tasks. Starting a process takes as long as auditing some hundred of Banking's; see perf/README.md."""
_PORTIONS = 24
"""Pieces the tasks are dealt out in, so that no process is left with the long ones."""


def static_audit(build: Build, *, workers: int = 2) -> StaticAudit:
    """Audit a benchmark without a model.

    Args:
        build: Makes the benchmark, here and in each process.
        workers: Processes; a small benchmark, or one worker, is audited in this one.

    Raises:
        ConfigError: If the benchmark cannot be made.
    """
    benchmark = build()
    suites_in = {name: benchmark.suite(name) for name in benchmark.suite_names()}
    tasks = [(name, task) for name, of in suites_in.items() for task in (*of.user_tasks, *of.injection_tasks)]
    workers = min(workers, os.cpu_count() or 1)
    if workers < 2 or len(tasks) < WORTH_A_PROCESS:
        rows = _audited(benchmark, tasks)
    else:
        rows = _in_processes(build, tasks, workers)
    found = dict(zip(tasks, rows, strict=True))
    suites = tuple(_suite(benchmark, name, found) for name in suites_in)
    return StaticAudit(benchmark.name, benchmark.version, package(), suites)


def package() -> str:
    """The benchmark's package and its version, e.g. `agentdojo 0.1.35`."""
    return f"agentdojo {installed_version('agentdojo')}"


def _suite(
    benchmark: Benchmark, name: str, found: dict[tuple[str, str], UserTaskAudit | InjectionTaskAudit]
) -> SuiteAudit:
    rows = [row for (suite, _), row in found.items() if suite == name]
    rows.sort(key=lambda row: _number(row.task))
    users = [row for row in rows if isinstance(row, UserTaskAudit)]
    attacks = [row for row in rows if isinstance(row, InjectionTaskAudit)]
    return SuiteAudit(name, data_hash(benchmark.suite(name)), tuple(users), tuple(attacks))


def _number(task: str) -> tuple[int, str]:
    digits = task.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0, task)


def _audited(benchmark: Benchmark, tasks: Sequence[tuple[str, str]]) -> Rows:
    """Rows of some tasks, in order."""
    auditors = {name: _Auditor(benchmark, name) for name in dict.fromkeys(suite for suite, _ in tasks)}
    # Some of AgentDojo's checks print, and some of its texts make a parser warn.
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(auditors[suite].row(task) for suite, task in tasks)


class _Auditor:
    """Audits tasks of one suite; what they share is worked out once."""

    def __init__(self, benchmark: Benchmark, suite: str) -> None:
        self._name, self._suite = suite, benchmark.suite(suite)
        self._stage = Stage(self._suite)
        self._words = VectorWords(self._suite)
        self._attacks: tuple[Subject, ...] | None = None

    def row(self, task_id: str) -> UserTaskAudit | InjectionTaskAudit:
        # The same codes in every audit, whichever process a task falls to.
        with drawing(CaseRandom(("audit", self._name, task_id))):
            return self._row(task_id)

    def _row(self, task_id: str) -> UserTaskAudit | InjectionTaskAudit:
        if task_id in self._suite.injection_tasks:
            return audit_injection_task(subject_of(self._stage, self._suite.injection_tasks[task_id]))
        if self._attacks is None:
            tasks = self._suite.injection_tasks.values()
            self._attacks = tuple(subject_of(self._stage, task) for task in tasks)
        user = subject_of(self._stage, self._suite.user_tasks[task_id])
        return audit_user_task(user, self._attacks, self._words)


def audit_user_task(user: Subject, attacks: Sequence[Subject], words: VectorWords) -> UserTaskAudit:
    """Put every check to a user task."""
    path = vectors_on_path(user)
    return UserTaskAudit(
        task=user.task.ID,
        noop_utility=noop_passes(user),
        own_ground_truth=own_ground_truth(user),
        empty_ground_truth=empty_ground_truth(user),
        security_on_user_ground_truth=attacks_satisfied(user, attacks),
        pair_compatible=compatible_attacks(user, attacks),
        repeat_safe=repeat_safe(user),
        reads_that_break=reads_that_break(user),
        surviving_mutations=surviving_mutations(user),
        overwritten=overwritten(user, path, words),
        identifier_vector=identifier_vectors(user),
        vectors_on_path=path,
        non_idempotent_check=changes_what_it_checks(user),
    )


def audit_injection_task(attack: Subject) -> InjectionTaskAudit:
    """Put every check to an injection task."""
    return InjectionTaskAudit(
        task=attack.task.ID,
        noop_security=noop_passes(attack),
        own_ground_truth=own_ground_truth(attack),
        empty_ground_truth=empty_ground_truth(attack),
        repeat_safe=repeat_safe(attack),
        non_idempotent_check=changes_what_it_checks(attack),
    )


def _in_processes(build: Build, tasks: Sequence[tuple[str, str]], workers: int) -> Rows:
    portions = [tasks[start::_PORTIONS] for start in range(_PORTIONS)]
    answers = in_processes(_portion, portions, workers, partial(_begin, build))
    found = {
        task: row
        for portion, rows in zip(portions, answers, strict=True)
        for task, row in zip(portion, rows, strict=True)
    }
    return tuple(found[task] for task in tasks)


_BENCHMARK: list[Benchmark] = []
"""This process's own, if it is one of the pool's."""


def _begin(build: Build) -> None:
    _BENCHMARK[:] = [build()]


def _portion(tasks: Sequence[tuple[str, str]]) -> Rows:
    return _audited(_BENCHMARK[0], tasks)
