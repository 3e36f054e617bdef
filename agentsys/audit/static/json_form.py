"""`static_data`: a static audit as JSON-ready data, whole or as little as states it."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from typing import Any

from agentsys.audit.static.mutations import Mutation
from agentsys.audit.static.rows import InjectionTaskAudit, StaticAudit, SuiteAudit, UserTaskAudit

TaskRow = UserTaskAudit | InjectionTaskAudit


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
        "summary": _build_summary_data(suite),
        "user_tasks": [asdict(row) for row in suite.user_tasks],
        "injection_tasks": [asdict(row) for row in suite.injection_tasks],
    }


def _build_summary_data(suite: SuiteAudit) -> dict[str, Any]:
    return {
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
    }


def build_expectation(audit: StaticAudit) -> dict[str, Any]:
    """State what a later audit has to find again: only what is not as one would wish, task by task.

    Verdicts of our own (a mutation's kind and review) are not in it.
    """
    suites = {
        suite.suite: {
            "data_hash": suite.data_hash,
            "user_tasks": {row.task: _list_remarkable_fields(row) for row in suite.user_tasks},
            "injection_tasks": {row.task: _list_remarkable_fields(row) for row in suite.injection_tasks},
        }
        for suite in audit.suites
    }
    return {
        "benchmark": audit.benchmark,
        "version": audit.version,
        "package": audit.package,
        "suites": suites,
    }


def _list_remarkable_fields(row: TaskRow) -> dict[str, Any]:
    """The fields of a row that differ from their defaults."""
    found = {field.name: getattr(row, field.name) for field in fields(row) if field.default is not MISSING}
    defaults = {field.name: field.default for field in fields(row)}
    return {name: _convert_plain(value) for name, value in found.items() if value != defaults[name]}


def _convert_plain(value: object) -> object:
    if isinstance(value, tuple):
        return [format_mutation(item) if isinstance(item, Mutation) else item for item in value]
    return value


def format_mutation(mutation: Mutation) -> str:
    """A mutation in short: `2:send_email.recipients`, or `2:send_email` for a call left out."""
    whole = f"{mutation.call}:{mutation.function}"
    return f"{whole}.{mutation.argument}" if mutation.argument else whole
