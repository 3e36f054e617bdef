"""`static_audit`: every check on every task of a benchmark, in two processes."""

from __future__ import annotations

import io
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from multiprocessing import get_context

from agentsys.audit.static.audited_task import Subject, subject_of
from agentsys.audit.static.suite_audit import SuiteAudit
from agentsys.audit.static.task_player import Stage
from agentsys.audit.static.task_rows import (
    InjectionTaskAudit,
    UserTaskAudit,
    audit_injection_task,
    audit_user_task,
)
from agentsys.audit.static.vector_words import VectorWords
from agentsys.benchmarks.data_hash import data_hash
from agentsys.contracts import Benchmark

Build = Callable[[], Benchmark]
"""Makes the benchmark; must be picklable where several processes work."""
Rows = tuple[UserTaskAudit | InjectionTaskAudit, ...]
WORTH_A_PROCESS = 60
"""Tasks. Starting a process takes as long as auditing some hundred of Banking's; see perf/README.md."""
_PORTIONS = 24
"""Pieces the tasks are dealt out in, so that no process is left with the long ones."""


@dataclass(frozen=True)
class StaticAudit:
    """A benchmark's audit."""

    benchmark: str
    version: str
    package: str
    """The installed AgentDojo, e.g. `agentdojo 0.1.35`."""
    suites: tuple[SuiteAudit, ...]


def static_audit(build: Build, *, workers: int = 2) -> StaticAudit:
    """Audit a benchmark without a model.

    Args:
        build: Makes the benchmark, here and in each process.
        workers: Processes; a small benchmark, or one worker, is audited in this one.

    Raises:
        ConfigError: If the benchmark cannot be made.
    """
    benchmark = build()
    tasks = [(name, task) for name in benchmark.suite_names() for task in _task_ids(benchmark, name)]
    workers = min(workers, os.cpu_count() or 1)
    if workers < 2 or len(tasks) < WORTH_A_PROCESS:
        rows = _audited(benchmark, tasks)
    else:
        rows = _in_processes(build, tasks, workers)
    found = dict(zip(tasks, rows, strict=True))
    suites = tuple(_suite(benchmark, name, found) for name in benchmark.suite_names())
    package = f"agentdojo {installed_version('agentdojo')}"
    return StaticAudit(benchmark.name, benchmark.version, package, suites)


def _task_ids(benchmark: Benchmark, suite: str) -> list[str]:
    of = benchmark.suite(suite)
    return [*of.user_tasks, *of.injection_tasks]


def _suite(
    benchmark: Benchmark, name: str, found: dict[tuple[str, str], UserTaskAudit | InjectionTaskAudit]
) -> SuiteAudit:
    rows = [row for (suite, _), row in found.items() if suite == name]
    users = sorted((r for r in rows if isinstance(r, UserTaskAudit)), key=lambda row: _number(row.task))
    attacks = sorted(
        (r for r in rows if isinstance(r, InjectionTaskAudit)), key=lambda row: _number(row.task)
    )
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
        self._suite = benchmark.suite(suite)
        self._stage = Stage(self._suite)
        self._words = VectorWords(self._suite)
        self._attacks: tuple[Subject, ...] | None = None

    def row(self, task_id: str) -> UserTaskAudit | InjectionTaskAudit:
        if task_id in self._suite.injection_tasks:
            return audit_injection_task(subject_of(self._stage, self._suite.injection_tasks[task_id]))
        if self._attacks is None:
            tasks = self._suite.injection_tasks.values()
            self._attacks = tuple(subject_of(self._stage, task) for task in tasks)
        user = subject_of(self._stage, self._suite.user_tasks[task_id])
        return audit_user_task(user, self._attacks, self._words)


def _in_processes(build: Build, tasks: Sequence[tuple[str, str]], workers: int) -> Rows:
    portions = [tasks[start::_PORTIONS] for start in range(_PORTIONS)]
    # Fresh interpreters: a copy of this process would inherit its threads' locks.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(build,))
    try:
        answers = list(pool.map(_portion, portions))
    finally:
        pool.shutdown(cancel_futures=True)
    found = {
        task: row
        for portion, rows in zip(portions, answers, strict=True)
        for task, row in zip(portion, rows, strict=True)
    }
    return tuple(found[task] for task in tasks)


_BENCHMARK: list[Benchmark] = []
"""This process's own, if it is one of the pool's."""


def _begin(build: Build) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _BENCHMARK[:] = [build()]


def _portion(tasks: Sequence[tuple[str, str]]) -> Rows:
    return _audited(_BENCHMARK[0], tasks)
