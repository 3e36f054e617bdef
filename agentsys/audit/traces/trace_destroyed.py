"""Attacked records of user tasks that the injection itself destroys: no defense can win them."""

from __future__ import annotations

from collections.abc import Iterable

from agentsys.audit.traces.trace_exposure import AttackedTrace
from agentsys.audit.traces.trace_findings import DestroyedRow


def destroyed_rows(traces: Iterable[AttackedTrace]) -> tuple[DestroyedRow, ...]:
    """One row per destroyed user task, by suite and number; errored records are left out."""
    groups: dict[tuple[str, str], list[bool]] = {}
    for trace in traces:
        if trace.destroyed and not trace.errored:
            groups.setdefault((trace.case.suite, trace.case.user_task_id), []).append(trace.solved)
    rows = [DestroyedRow(*key, len(group), sum(group)) for key, group in groups.items()]
    return tuple(sorted(rows, key=lambda row: (row.suite, len(row.user_task_id), row.user_task_id)))
