"""`static_sections`: a static audit as grids: a summary, what was found, and every task if wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentsys.analysis.tables.document import Grid, cells
from agentsys.audit.static.findings import (
    TaskFinding,
    attack_findings,
    of_injection_task,
    of_user_task,
    user_findings,
)
from agentsys.audit.static.rows import StaticAudit, SuiteAudit, UserTaskAudit
from agentsys.audit.static.task_numbers import numbers

Section = tuple[str, Sequence[Grid]]
_NONE = "-"
_ABREAST = 4
"""Suites side by side in the summary: what a terminal of 80 columns has room for."""


def static_sections(audit: StaticAudit, *, every_task: bool = False) -> list[Section]:
    """The summary, and a section per suite of which something is found, or `every_task` is told."""
    sections = ((suite.suite, _suite(suite, every_task)) for suite in audit.suites)
    starts = range(0, len(audit.suites), _ABREAST)
    summary = [_summary(audit.suites[start : start + _ABREAST]) for start in starts]
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


def _summary(suites: Sequence[SuiteAudit]) -> Grid:
    rows = [cells(title, *map(cell, suites)) for title, cell in _SUMMARY.items()]
    header = ("", *(suite.suite for suite in suites))
    return Grid("findings per suite", header, rows, names=1, wraps=frozenset(range(1, len(header))))


def _suite(suite: SuiteAudit, every_task: bool) -> list[Grid]:
    found = [
        _findings(f"{suite.suite}: user tasks", "user tasks", user_findings(suite)),
        _findings(f"{suite.suite}: injection tasks", "injection tasks", attack_findings(suite)),
    ]
    single = [_users(suite), _attacks(suite)] if every_task else []
    return [grid for grid in [*found, *single] if grid.rows]


def _findings(caption: str, kind: str, found: Sequence[TaskFinding]) -> Grid:
    rows = [cells(finding.says, numbers(finding.tasks)) for finding in found]
    return Grid(caption, ("finding", kind), rows, names=2, wraps=frozenset({0, 1}))


def _users(suite: SuiteAudit) -> Grid:
    columns = _user_columns(suite)
    rows = [
        cells(row.task, *(cell(row) for cell in columns.values()), _joined(of_user_task(row, suite)))
        for row in suite.user_tasks
    ]
    header = ("user task", *columns, "findings")
    caption = f"{suite.suite}: every user task"
    return Grid(caption, header, rows, names=len(header), wraps=frozenset({len(header) - 1}))


def _user_columns(suite: SuiteAudit) -> dict[str, Callable[[UserTaskAudit], str]]:
    """Columns told of every task; nothing that a suite has nothing for."""
    columns: dict[str, Callable[[UserTaskAudit], str]] = {}
    if suite.pairs:
        columns["solved after"] = lambda row: numbers(row.pair_compatible) if row.pair_compatible else _NONE
    if any(row.vectors_on_path for row in suite.user_tasks):
        columns["vectors"] = lambda row: str(len(row.vectors_on_path))
    return columns


def _attacks(suite: SuiteAudit) -> Grid:
    rows = [cells(row.task, _joined(of_injection_task(row, suite))) for row in suite.injection_tasks]
    header = ("injection task", "findings")
    return Grid(f"{suite.suite}: every injection task", header, rows, names=2, wraps=frozenset({1}))


def _joined(found: Sequence[tuple[int, str]]) -> str:
    return "; ".join(text for _, text in found) or _NONE
