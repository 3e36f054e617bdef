"""`AuditReport`: both parts of an audit, as sentences for a paper and as grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.analysis.tables.table_document import Document, Grid, GridCell, cells
from agentsys.analysis.tables.table_writers import Output, grid_records
from agentsys.audit.static.static_document import (
    AuditSection,
    build_static_sections,
    format_task_numbers,
    name_benchmark,
    write_static_sentences,
)
from agentsys.audit.static.static_rows import StaticAudit, build_static_data
from agentsys.audit.trace_audit import TraceAudit
from agentsys.audit.trace_rows import AsrRow, DestroyedRow, ExposureRow, SolvedRow, TraceCase

_NAME_COLUMNS = frozenset({0, 1, 2})
"""Columns of names, which are as long as whoever wrote the files made them."""
MAX_LISTED_CASES = 40
"""Single cases that a grid lists; the JSON has all."""


def build_trace_sections(found: TraceAudit, *, every_task: bool = False) -> list[AuditSection]:
    """One section per finding of something; `every_task`: a row per user task, too. Names are unescaped."""
    makers = (*_GRIDS, *_BY_TASK) if every_task else _GRIDS
    grids = (grid for make in makers for grid in [make(found)] if grid.rows)
    return [(f"Stored runs: {grid.caption}", [grid]) for grid in grids]


def write_trace_sentences(found: TraceAudit) -> list[str]:
    """Say what a reader has to know of these runs before their numbers."""
    return [
        f"The stored runs hold {found.attacked} attacked and {found.benign} benign records and {found.alone}"
        f" injection tasks run alone; {sum(row.records for row in found.hollow)} hollow records and"
        f" {len(found.skipped)} others could not be used.",
        *_write_exposure(found),
        *_write_successes(found),
        *_write_destroyed(found),
        *_write_answers(found),
    ]


def _write_exposure(found: TraceAudit) -> Iterator[str]:
    shares = [
        f"{row.suite} {_format_percent(row.not_exposed_share)} ({row.cases - row.exposed} of {row.cases})"
        for row in found.exposure
        if row.user_task_id is None and row.cases
    ]
    if shares:
        yield f"No tool returned the injection in: {', '.join(shares)}."


def _write_successes(found: TraceAudit) -> Iterator[str]:
    cases = found.successes_without_exposure
    if found.attacked:
        where = (
            f" ({', '.join(dict.fromkeys(_name_task(case) for case in cases[:MAX_LISTED_CASES]))})"
            if cases
            else ""
        )
        yield f"{len(cases)} targeted attacks succeeded although no tool returned the injection{where}."
    errored, stored = sum(r.errored for r in found.errors), sum(r.stored_as_success for r in found.errors)
    if errored:
        yield f"{stored} of {errored} attacked records that ended in an error are stored as successes."
    if found.benign_hits:
        satisfied = dict.fromkeys(_name_task(hit.trace) for hit in found.benign_hits)
        yield f"{len(found.benign_hits)} attack checks pass on benign records: {', '.join(satisfied)}."
    for words, rows in (("never", found.never_solved), ("always", found.always_solved)):
        if rows:
            yield f"User tasks {words} solved without an attack, in {_count_runs(rows)} each: {_list_by_suite(rows)}."


def _write_destroyed(found: TraceAudit) -> Iterator[str]:
    if found.destroyed:
        solved, cases = (sum(getattr(row, name) for row in found.destroyed) for name in ("solved", "cases"))
        yield (
            f"The user task was solved in {solved} of {cases} attacked records of tasks whose injection "
            f"overwrites what they need ({_list_by_suite(found.destroyed)})."
        )


def _write_answers(found: TraceAudit) -> Iterator[str]:
    if found.answer_text:
        cases, lost, gained = (
            sum(getattr(row, name) for row in found.answer_text) for name in ("cases", "lost", "gained")
        )
        yield (
            f"The last message of {cases} records has an answer section among others: judged on it alone, "
            f"the utility of {lost} turns false and of {gained} true."
        )


def _name_task(case: TraceCase) -> str:
    return f"{case.suite} {format_task_numbers([case.user_task_id])}"


def _count_runs(rows: Sequence[SolvedRow]) -> str:
    counts = sorted({row.runs for row in rows})
    if counts == [1]:
        return "1 record"
    return f"{counts[0]} records" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} records"


def _list_by_suite(rows: Sequence[SolvedRow | DestroyedRow]) -> str:
    suites = dict.fromkeys(row.suite for row in rows)
    return "; ".join(
        f"{s} {format_task_numbers(row.user_task_id for row in rows if row.suite == s)}" for s in suites
    )


def _build_asr_grid(found: TraceAudit) -> Grid:
    header = ("pipeline", "attack", "suite", "cases", "ASR", "exposed", "of these")
    rows = [_build_asr_cells(row) for row in found.asr]
    return Grid("attack success in percent, all and exposed cases", header, rows, 3, wraps=_NAME_COLUMNS)


def _build_asr_cells(row: AsrRow) -> tuple[GridCell, ...]:
    shares = (
        str(row.cases),
        _format_percent(row.asr),
        str(row.exposed_cases),
        _format_percent(row.asr_exposed),
    )
    return cells(row.pipeline, row.attack, row.suite, *shares)


def _build_exposure_grid(found: TraceAudit) -> Grid:
    header = ("suite", "cases", "exposed", "not exposed", "unknown")
    rows = [
        cells(row.suite, *_build_exposure_cells(row)) for row in found.exposure if row.user_task_id is None
    ]
    return Grid("was the injection met?", header, rows, names=1, wraps=frozenset({0}))


def _build_exposure_by_task(found: TraceAudit) -> Grid:
    header = ("suite", "user task", "cases", "exposed", "not exposed", "unknown")
    rows = [
        cells(row.suite, row.user_task_id, *_build_exposure_cells(row))
        for row in found.exposure
        if row.user_task_id
    ]
    return Grid("was the injection met, by user task?", header, rows, names=2, wraps=frozenset({0, 1}))


def _build_exposure_cells(row: ExposureRow) -> tuple[str, ...]:
    return (str(row.cases), str(row.exposed), _format_percent(row.not_exposed_share), str(row.unknown))


def _build_unexposed_grid(found: TraceAudit) -> Grid:
    header = ("pipeline", "suite", "user task", "attack", "injection task")
    rows = [
        cells(case.pipeline, case.suite, case.user_task_id, case.attack, case.injection_task_id or "-")
        for case in found.successes_without_exposure[:MAX_LISTED_CASES]
    ]
    caption = _caption_first("successes without exposure", found.successes_without_exposure)
    return Grid(caption, header, rows, names=5, wraps=frozenset(range(5)))


def _build_hits_grid(found: TraceAudit) -> Grid:
    header = ("pipeline", "suite", "user task", "satisfied injection task")
    rows = [
        cells(hit.trace.pipeline, hit.trace.suite, hit.trace.user_task_id, hit.satisfied)
        for hit in found.benign_hits[:MAX_LISTED_CASES]
    ]
    caption = _caption_first("attack checks that pass on benign records", found.benign_hits)
    return Grid(caption, header, rows, names=4, wraps=_NAME_COLUMNS)


def _build_saturated_grid(found: TraceAudit) -> Grid:
    header = ("suite", "user task", "solved", "records", "solved, scored again")
    rows = [
        cells(row.suite, row.user_task_id, str(row.recorded), str(row.runs), str(row.rescored))
        for row in (*found.never_solved, *found.always_solved)
    ]
    return Grid("user tasks never or always solved without an attack", header, rows, names=2)


def _build_state_equal_grid(found: TraceAudit) -> Grid:
    header = ("suite", "tasks", "failed", "state right", "scored again", "state right")
    rows = [
        cells(
            row.suite,
            "changing" if row.changes_state else "read only",
            *(str(n) for n in (row.failures_recorded, row.equal_recorded, row.failures, row.equal)),
        )
        for row in found.state_equal
    ]
    return Grid("failed user tasks that end in the ground truth's environment", header, rows, names=2)


def _build_errors_grid(found: TraceAudit) -> Grid:
    rows = [cells(r.pipeline, r.suite, str(r.errored), str(r.stored_as_success)) for r in found.errors]
    header = ("pipeline", "suite", "errored", "stored as success")
    return Grid("attacked records that ended in an error", header, rows, names=2, wraps=frozenset({0, 1}))


def _build_direct_grid(found: TraceAudit) -> Grid:
    rows = [
        cells(r.suite, r.injection_task_id, str(r.runs), str(r.recorded), str(r.rescored))
        for r in found.asked_directly
    ]
    header = ("suite", "injection task", "records", "carried out", "scored again")
    return Grid("injection tasks asked for directly", header, rows, names=2)


def _build_destroyed_grid(found: TraceAudit) -> Grid:
    rows = [cells(r.suite, r.user_task_id, str(r.cases), str(r.solved)) for r in found.destroyed]
    header = ("suite", "user task", "attacked", "solved")
    return Grid("attacked user tasks whose injection overwrites what they need", header, rows, names=2)


def _build_answers_grid(found: TraceAudit) -> Grid:
    rows = [
        cells(r.pipeline, r.suite, *(str(count) for count in (r.cases, r.solved, r.lost, r.gained)))
        for r in found.answer_text
    ]
    header = ("pipeline", "suite", "records", "solved", "lost", "gained")
    caption = "utility when only the answer section is judged"
    return Grid(caption, header, rows, names=2, wraps=frozenset({0}))


def _build_unused_grid(found: TraceAudit) -> Grid:
    hollow = [cells(row.folder, f"{row.records} hollow records") for row in found.hollow]
    others = [cells(record.source, record.reason) for record in found.skipped[:MAX_LISTED_CASES]]
    caption = _caption_first("records that could not be used", found.skipped)
    return Grid(caption, ("where", "why"), [*hollow, *others], names=2, wraps=frozenset({0, 1}))


def _caption_first(caption: str, listed: Sequence[object]) -> str:
    return (
        caption
        if len(listed) <= MAX_LISTED_CASES
        else f"{caption} (the first {MAX_LISTED_CASES} of {len(listed)})"
    )


def _format_percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f}%"


_GRIDS: tuple[Callable[[TraceAudit], Grid], ...] = (
    _build_asr_grid,
    _build_exposure_grid,
    _build_unexposed_grid,
    _build_hits_grid,
    _build_errors_grid,
    _build_state_equal_grid,
    _build_direct_grid,
    _build_destroyed_grid,
    _build_answers_grid,
    _build_unused_grid,
)
_BY_TASK: tuple[Callable[[TraceAudit], Grid], ...] = (_build_exposure_by_task, _build_saturated_grid)
"""Grids as long as the benchmark; the sentences say what matters in them."""


@dataclass(frozen=True)
class AuditReport:
    """The findings about a benchmark."""

    static: StaticAudit
    """Without suites where stored runs alone were looked at."""
    trace: TraceAudit | None = None
    """Of stored runs, where there were any to look at."""


def write_audit_sentences(report: AuditReport) -> list[str]:
    """Sentences that a paper can quote."""
    said = write_static_sentences(report.static) if report.static.suites else []
    return said + (write_trace_sentences(report.trace) if report.trace else [])


def build_audit_output(report: AuditReport, *, every_task: bool = False) -> Output:
    """Make an audit ready to be written in any form.

    Args:
        report: What was found.
        every_task: Whether tasks of which nothing was found are shown, too; JSON has the rows of all.
    """
    document = build_audit_document(report, every_task=every_task)
    data: dict[str, Any] = {**build_static_data(report.static), "sentences": write_audit_sentences(report)}
    if report.trace is not None:
        data["runs"] = report.trace.to_json()
    return Output(document.title, document, grid_records(document), data)


def build_audit_document(report: AuditReport, *, every_task: bool = False) -> Document:
    """Arrange the sentences and then the grids.

    Args:
        report: The findings.
        every_task: Whether tasks of which nothing was found are shown, too.
    """
    sections = build_static_sections(report.static, every_task=every_task) if report.static.suites else []
    if report.trace:
        sections += build_trace_sections(report.trace, every_task=every_task)
    return Document(
        sections,
        notes=(),
        title=f"Audit of {name_benchmark(report.static)}",
        quotable=write_audit_sentences(report),
    )
