"""`AuditReport`: both parts of an audit, and the forms it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentsys.analysis.tables.document import Document
from agentsys.analysis.tables.output import Output, grid_records
from agentsys.audit.static.document import build_static_sections
from agentsys.audit.static.json_form import build_static_data
from agentsys.audit.static.paper_sentences import write_static_sentences, name_benchmark
from agentsys.audit.static.rows import StaticAudit
from agentsys.audit.traces.audit import TraceAudit
from agentsys.audit.traces.document import build_trace_sections, write_trace_sentences


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
        sections, notes=(), title=f"Audit of {name_benchmark(report.static)}", quotable=write_audit_sentences(report)
    )
