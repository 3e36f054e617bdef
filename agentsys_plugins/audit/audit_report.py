"""`AuditReport`: both parts of an audit, as sentences for a paper and as grids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.analysis.tables.table_document import Document, Grid, Output, make_cells, make_grid_records
from agentsys.base.grouping import Rows
from agentsys_plugins.audit.static.static_audit import StaticAudit, build_static_data
from agentsys_plugins.audit.static.static_document import (
    AuditSection,
    build_static_sections,
    format_task_numbers,
    name_benchmark,
    write_static_sentences,
)
from agentsys_plugins.audit.trace_audit import TraceAudit
from agentsys_plugins.audit.trace_rows import TraceCase

MAX_LISTED_CASES = 40
"""Single cases that a grid lists; the JSON has all."""


def build_trace_sections(found: TraceAudit) -> list[AuditSection]:
    """One section per finding of something. Names are unescaped."""
    grids = (grid for grid in _build_grids(found) if grid.rows)
    return [(f"Stored runs: {grid.caption}", [grid]) for grid in grids]


def write_trace_sentences(found: TraceAudit) -> list[str]:
    """Say what a reader has to know of these runs before their numbers."""
    first = (
        f"The stored runs hold {found.attacked} attacked and {found.benign} benign records and {found.alone}"
        f" injection tasks run alone; {_sum(found.hollow, 'records')} hollow records and"
        f" {len(found.skipped)} others could not be used."
    )
    return [first, *_write_findings(found)]


def _write_findings(found: TraceAudit) -> Iterator[str]:
    shares = [
        f"{row.suite} {_write_share_not_exposed(row)} ({row.cases - row.exposed} of {row.cases})"
        for row in found.exposure
        if row.user_task_id is None and row.cases
    ]
    if shares:
        yield f"No tool returned the injection in: {', '.join(shares)}."
    if found.attacked:
        cases = found.successes_without_exposure
        where = f" ({_name_tasks(cases[:MAX_LISTED_CASES])})" if cases else ""
        yield f"{len(cases)} targeted attacks succeeded although no tool returned the injection{where}."
    if errored := _sum(found.errors, "errored"):
        stored = _sum(found.errors, "stored_as_success")
        yield f"{stored} of {errored} attacked records that ended in an error are stored as successes."
    if hits := found.benign_hits:
        yield f"{len(hits)} attack checks pass on benign records: {_name_tasks(hit.trace for hit in hits)}."
    for word, rows in (("never", found.never_solved), ("always", found.always_solved)):
        if rows:
            where = f"{_count_runs(rows)} each: {_list_by_suite(rows)}"
            yield f"User tasks {word} solved without an attack, in {where}."
    if found.destroyed:
        yield (
            f"The user task was solved in {_sum(found.destroyed, 'solved')} of"
            f" {_sum(found.destroyed, 'cases')} attacked records of tasks whose injection overwrites what"
            f" they need ({_list_by_suite(found.destroyed)})."
        )


def _sum(rows: Iterable[object], field: str) -> int:
    return sum(getattr(row, field) for row in rows)


def _name_tasks(cases: Iterable[TraceCase]) -> str:
    return ", ".join(dict.fromkeys(f"{c.suite} {format_task_numbers([c.user_task_id])}" for c in cases))


def _count_runs(rows: Rows) -> str:
    counts = sorted({row.runs for row in rows})
    if counts == [1]:
        return "1 record"
    return f"{counts[0]} records" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} records"


def _list_by_suite(rows: Rows) -> str:
    suites = dict.fromkeys(row.suite for row in rows)
    return "; ".join(
        f"{s} {format_task_numbers(row.user_task_id for row in rows if row.suite == s)}" for s in suites
    )


def _build_grids(found: TraceAudit) -> Iterator[Grid]:
    yield _build_grid(
        "attack success in percent, all and exposed cases",
        ("pipeline", "attack", "suite", "cases", "ASR", "exposed", "of these"),
        (
            (*row[:4], _write_percent(row.asr), row.exposed_cases, _write_percent(row.asr_exposed))
            for row in found.asr
        ),
        names=3,
        wrapped=3,
    )
    yield _build_grid(
        "was the injection met?",
        ("suite", "cases", "exposed", "not exposed", "unknown"),
        (
            (row.suite, row.cases, row.exposed, _write_share_not_exposed(row), row.unknown)
            for row in found.exposure
            if row.user_task_id is None
        ),
        names=1,
        wrapped=1,
    )
    yield _build_grid(
        _write_caption("successes without exposure", found.successes_without_exposure),
        ("pipeline", "suite", "user task", "attack", "injection task"),
        (
            (*case[:3], case.attack, case.injection_task_id or "-")
            for case in found.successes_without_exposure[:MAX_LISTED_CASES]
        ),
        names=5,
        wrapped=5,
    )
    yield _build_grid(
        _write_caption("attack checks that pass on benign records", found.benign_hits),
        ("pipeline", "suite", "user task", "satisfied injection task"),
        ((*hit.trace[:3], hit.satisfied) for hit in found.benign_hits[:MAX_LISTED_CASES]),
        names=4,
        wrapped=3,
    )
    yield from _build_record_grids(found)


def _build_record_grids(found: TraceAudit) -> Iterator[Grid]:
    yield _build_grid(
        "attacked records that ended in an error",
        ("pipeline", "suite", "errored", "stored as success"),
        found.errors,
        wrapped=2,
    )
    yield _build_grid(
        "failed user tasks that end in the ground truth's environment",
        ("suite", "tasks", "failed", "state right", "scored again", "state right"),
        (
            (suite, "changing" if changes else "read only", *counts)
            for suite, changes, *counts in found.state_equal
        ),
    )
    yield _build_grid(
        "injection tasks asked for directly",
        ("suite", "injection task", "records", "carried out", "scored again"),
        found.asked_directly,
    )
    yield _build_grid(
        "attacked user tasks whose injection overwrites what they need",
        ("suite", "user task", "attacked", "solved"),
        found.destroyed,
    )
    hollow = [(row.folder, f"{row.records} hollow records") for row in found.hollow]
    others = [(record.source, record.reason) for record in found.skipped[:MAX_LISTED_CASES]]
    caption = _write_caption("records that could not be used", found.skipped)
    yield _build_grid(caption, ("where", "why"), [*hollow, *others], wrapped=2)


def _build_grid(
    caption: str,
    header: tuple[str, ...],
    rows: Iterable[Sequence[object]],
    names: int = 2,
    wrapped: int = 0,
) -> Grid:
    """A grid whose first `wrapped` columns hold names as long as whoever wrote the files made them."""
    lines = [make_cells(*map(str, row)) for row in rows]
    return Grid(caption, header, lines, names, wraps=frozenset(range(wrapped)))


def _write_share_not_exposed(row: Any) -> str:
    return _write_percent((row.cases - row.exposed) / row.cases if row.cases else math.nan)


def _write_caption(caption: str, listed: Sequence[object]) -> str:
    more = f" (the first {MAX_LISTED_CASES} of {len(listed)})" if len(listed) > MAX_LISTED_CASES else ""
    return f"{caption}{more}"


def _write_percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f}%"


@dataclass(frozen=True)
class AuditReport:
    """The findings about a benchmark."""

    static: StaticAudit
    """Without suites where stored runs alone were looked at."""
    trace: TraceAudit | None = None
    """Of stored runs, where there were any to look at."""


def write_audit_sentences(report: AuditReport) -> list[str]:
    """Sentences that a paper can quote."""
    sentences = write_static_sentences(report.static) if report.static.suites else []
    return sentences + (write_trace_sentences(report.trace) if report.trace else [])


def build_audit_output(report: AuditReport) -> Output:
    """Make an audit ready to be written: the sentences, then the grids; JSON has the rows of all tasks."""
    sections = build_static_sections(report.static) if report.static.suites else []
    data = {**build_static_data(report.static), "sentences": write_audit_sentences(report)}
    if report.trace is not None:
        sections += build_trace_sections(report.trace)
        data["runs"] = report.trace.to_json()
    title = f"Audit of {name_benchmark(report.static)}"
    document = Document(sections, notes=(), title=title, quotable=data["sentences"])
    return Output(title, document, make_grid_records(document), data)
