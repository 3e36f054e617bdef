"""Findings of a static audit: a row per task, what a suite's rows add up to, and both as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agentsys.audit.static.mutations import Mutation


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
            "reads_that_break": suite.breaking_reads,
            "not_repeat_safe": list(suite.repeat_unsafe),
            "unstable_checks": list(suite.unstable_checks),
            "mutation_candidates": len(suite.candidates),
            "destroyed_under_attack": list(suite.destroyed),
        },
        "user_tasks": [asdict(row) for row in suite.user_tasks],
        "injection_tasks": [asdict(row) for row in suite.injection_tasks],
    }
