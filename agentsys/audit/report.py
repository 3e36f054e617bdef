"""`AuditReport`: both parts of an audit, and the forms it is written in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from agentsys.analysis.tables.document import Document
from agentsys.analysis.tables.escaping import markdown_cell, plain
from agentsys.analysis.tables.write_terminal import terminal_document
from agentsys.analysis.tables.write_text import markdown_document
from agentsys.audit.static.document import static_sections
from agentsys.audit.static.json_form import static_data
from agentsys.audit.static.paper_sentences import sentences, title
from agentsys.audit.static.rows import StaticAudit
from agentsys.audit.traces.audit import TraceAudit
from agentsys.audit.traces.document import trace_sections, trace_sentences


@dataclass(frozen=True)
class AuditReport:
    """The findings about a benchmark."""

    static: StaticAudit
    trace: TraceAudit | None = None
    """Of stored runs, where there were any to look at."""


def audit_sentences(report: AuditReport) -> list[str]:
    """Sentences that a paper can quote."""
    return sentences(report.static) + (trace_sentences(report.trace) if report.trace else [])


def audit_document(report: AuditReport, *, every_task: bool = False) -> Document:
    """Everything but the sentences, as grids.

    Args:
        report: The findings.
        every_task: Whether tasks of which nothing was found are shown, too.
    """
    sections = static_sections(report.static, every_task=every_task)
    if report.trace:
        sections += trace_sections(report.trace, every_task=every_task)
    return Document(sections, notes=())


def audit_terminal(report: AuditReport, document: Document) -> RenderableType:
    """Lay the report out for a terminal: what it is of, the sentences, and then the grids of its document."""
    head = Text(plain(f"Audit of {title(report.static)}"), style="bold")
    said = [Text(f"- {plain(sentence)}") for sentence in audit_sentences(report)]
    return Group(head, *said, Text(), terminal_document(document))


def audit_json(report: AuditReport) -> str:
    """Write the report as JSON, with the rows of every task; ends in a newline."""
    data: dict[str, Any] = {**static_data(report.static), "sentences": audit_sentences(report)}
    if report.trace is not None:
        data["runs"] = report.trace.to_json()
    return json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def audit_markdown(report: AuditReport, *, every_task: bool = False) -> str:
    """Write the report as Markdown: a title, the sentences quoted, then the grids; ends in a newline."""
    quoted = "\n>\n".join(f"> {markdown_cell(sentence)}" for sentence in audit_sentences(report))
    grids = markdown_document(audit_document(report, every_task=every_task))
    return f"# Audit of {markdown_cell(title(report.static))}\n\n{quoted}\n\n{grids}"
