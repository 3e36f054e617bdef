"""`static_sections`: a static audit as grids: a summary, then one row per task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentsys.analysis.document import Grid, cells
from agentsys.audit.static_audit import StaticAudit
from agentsys.audit.static_data import mutation_text
from agentsys.audit.suite_audit import SuiteAudit
from agentsys.audit.task_numbers import numbers
from agentsys.audit.task_rows import InjectionTaskAudit, UserTaskAudit

Section = tuple[str, Sequence[Grid]]
_NONE = "-"


def static_sections(audit: StaticAudit) -> list[Section]:
    """The summary and a section per suite. Columns that a suite has nothing for are left out."""
    return [("Summary", [_summary(audit)]), *(_suite(suite) for suite in audit.suites)]


class _SummaryColumn(NamedTuple):
    title: str
    cell: Callable[[SuiteAudit], str]


_SUMMARY = (
    _SummaryColumn("user tasks", lambda s: str(len(s.user_tasks))),
    _SummaryColumn("solved by doing nothing", lambda s: str(len(s.noop))),
    _SummaryColumn("own ground truth passes", lambda s: str(s.own_passes)),
    _SummaryColumn("destroyed under attack", lambda s: str(len(s.destroyed))),
    _SummaryColumn("wrong values unnoticed", lambda s: str(len(s.candidates))),
    _SummaryColumn("injection tasks", lambda s: str(len(s.injection_tasks))),
    _SummaryColumn("no ground truth", lambda s: str(len(s.without_ground_truth))),
    _SummaryColumn("not repeat-safe", lambda s: str(len(s.repeat_unsafe))),
    _SummaryColumn("compatible pairs", lambda s: f"{s.compatible}/{s.pairs}"),
    _SummaryColumn("unstable checks", lambda s: str(len(s.unstable_checks))),
)


def _summary(audit: StaticAudit) -> Grid:
    rows = [cells(suite.suite, *(column.cell(suite) for column in _SUMMARY)) for suite in audit.suites]
    return Grid("findings per suite", ("suite", *(column.title for column in _SUMMARY)), rows, names=1)


def _suite(suite: SuiteAudit) -> Section:
    grids = [_users(suite)] if suite.user_tasks else []
    return suite.suite, [*grids, _attacks(suite)] if suite.injection_tasks else grids


class _UserColumn(NamedTuple):
    title: str
    cell: Callable[[UserTaskAudit], str]
    applies: Callable[[SuiteAudit], bool] = lambda _suite: True


def _has_pairs(suite: SuiteAudit) -> bool:
    return suite.pairs > 0


def _has_attacks(suite: SuiteAudit) -> bool:
    return bool(suite.injection_tasks)


def _has_vectors(suite: SuiteAudit) -> bool:
    return any(row.vectors_on_path or row.identifier_vector for row in suite.user_tasks)


def _has_breaking_reads(suite: SuiteAudit) -> bool:
    return bool(suite.breaking_reads)


_USER = (
    _UserColumn("does nothing", lambda r: "solved" if r.noop_utility else _NONE),
    _UserColumn("own ground truth", lambda r: _verdict(r.own_ground_truth, "passes", "FAILS")),
    _UserColumn("twice", lambda r: _verdict(r.repeat_safe, "passes", "fails")),
    _UserColumn("satisfies attacks", lambda r: _numbered(r.security_on_user_ground_truth), _has_attacks),
    _UserColumn("compatible attacks", lambda r: _numbered(r.pair_compatible), _has_pairs),
    _UserColumn("broken by reading", lambda r: _joined(r.reads_that_break), _has_breaking_reads),
    _UserColumn("wrong values unnoticed", lambda r: _mutations(r)),
    _UserColumn("vectors on path", lambda r: str(len(r.vectors_on_path)), _has_vectors),
    _UserColumn("overwritten by", lambda r: _joined(r.overwritten), _has_vectors),
    _UserColumn("identifier in", lambda r: _joined(r.identifier_vector), _has_vectors),
    _UserColumn("check", lambda r: _stability(r.non_idempotent_check)),
)


def _users(suite: SuiteAudit) -> Grid:
    columns = [column for column in _USER if column.applies(suite)]
    rows = [cells(row.task, *(column.cell(row) for column in columns)) for row in suite.user_tasks]
    header = ("user task", *(column.title for column in columns))
    return Grid(f"{suite.suite}: user tasks", header, rows, names=len(header))


def _attacks(suite: SuiteAudit) -> Grid:
    header = ("injection task", "does nothing", "own ground truth", "twice", "check")
    rows = [cells(*_attack(row)) for row in suite.injection_tasks]
    return Grid(f"{suite.suite}: injection tasks", header, rows, names=len(header))


def _attack(row: InjectionTaskAudit) -> tuple[str, ...]:
    own = "none" if row.empty_ground_truth else _verdict(row.own_ground_truth, "passes", "FAILS")
    twice = _verdict(row.repeat_safe, "passes", "fails")
    idle = "CARRIED OUT" if row.noop_security else _NONE
    return (row.task, idle, own, twice, _stability(row.non_idempotent_check))


def _mutations(row: UserTaskAudit) -> str:
    """Candidates only; the JSON has them all."""
    found = [
        f"{mutation_text(mutation)} [{mutation.reviewed}]"
        for mutation in row.surviving_mutations
        if mutation.is_candidate
    ]
    return _joined(found)


def _verdict(value: bool | None, good: str, bad: str) -> str:
    return _NONE if value is None else good if value else bad


def _stability(changes: bool) -> str:
    return "changes what it checks" if changes else "stable"


def _numbered(tasks: tuple[str, ...]) -> str:
    return numbers(tasks) if tasks else _NONE


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names) if names else _NONE
