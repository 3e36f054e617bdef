"""`static_sections`: a static audit as grids: a summary, what was found, and every task if wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentsys.analysis.tables.document import Grid, cells
from agentsys.audit.static.findings import (
    TaskFinding,
    list_attack_findings,
    find_injection_task_faults,
    find_user_task_faults,
    list_user_findings,
)
from agentsys.audit.static.rows import StaticAudit, SuiteAudit, UserTaskAudit
from agentsys.audit.static.task_numbers import format_task_numbers

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
        _build_findings_grid(f"{suite.suite}: injection tasks", "injection tasks", list_attack_findings(suite)),
    ]
    single = [_build_user_grid(suite), _build_attack_grid(suite)] if every_task else []
    return [grid for grid in [*found, *single] if grid.rows]


def _build_findings_grid(caption: str, kind: str, found: Sequence[TaskFinding]) -> Grid:
    rows = [cells(finding.statement, format_task_numbers(finding.tasks)) for finding in found]
    return Grid(caption, ("finding", kind), rows, names=2, wraps=frozenset({0, 1}))


def _build_user_grid(suite: SuiteAudit) -> Grid:
    columns = _choose_user_columns(suite)
    rows = [
        cells(row.task, *(cell(row) for cell in columns.values()), _join_names(find_user_task_faults(row, suite)))
        for row in suite.user_tasks
    ]
    header = ("user task", *columns, "findings")
    caption = f"{suite.suite}: every user task"
    return Grid(caption, header, rows, names=len(header), wraps=frozenset({len(header) - 1}))


def _choose_user_columns(suite: SuiteAudit) -> dict[str, Callable[[UserTaskAudit], str]]:
    """Columns told of every task; nothing that a suite has nothing for."""
    columns: dict[str, Callable[[UserTaskAudit], str]] = {}
    if suite.pairs:
        columns["solved after"] = lambda row: format_task_numbers(row.pair_compatible) if row.pair_compatible else _EMPTY_CELL
    if any(row.vectors_on_path for row in suite.user_tasks):
        columns["vectors"] = lambda row: str(len(row.vectors_on_path))
    return columns


def _build_attack_grid(suite: SuiteAudit) -> Grid:
    rows = [cells(row.task, _join_names(find_injection_task_faults(row, suite))) for row in suite.injection_tasks]
    header = ("injection task", "findings")
    return Grid(f"{suite.suite}: every injection task", header, rows, names=2, wraps=frozenset({1}))


def _join_names(found: Sequence[tuple[int, str]]) -> str:
    return "; ".join(text for _, text in found) or _EMPTY_CELL
