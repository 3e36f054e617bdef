"""What the audit says of stored runs: names from records are shown, never obeyed."""

from __future__ import annotations

import io
import json
from collections import namedtuple
from typing import Any

from rich.console import Console

from agentsys.analysis.tables.table_document import plain
from agentsys.analysis.tables.table_writers import OutputFormat, render_output
from agentsys.analysis.tables.write_terminal import terminal_document
from agentsys.audit.audit_report import (
    AuditReport,
    build_audit_output,
    write_trace_sentences,
)
from agentsys.audit.static.static_audit import StaticAudit
from agentsys.audit.trace_audit import TraceAudit
from agentsys.audit.trace_rows import AsrRow, BenignHit, TraceCase


def row(**counted: Any) -> Any:
    """A line of a table as `count_rows` makes it."""
    return namedtuple("Row", list(counted))(**counted)  # type: ignore[misc]


NASTY = "a|b<b>[red]x[/red]\x1b[2J\u202e"
CASE = TraceCase(NASTY, "banking", "user_task_15", "injection_task_4", NASTY, "/runs/x.json")
FOUND = TraceAudit(
    version="v1.2.2",
    pipelines=(NASTY,),
    attacked=10,
    benign=4,
    alone=0,
    exposure=(row(suite="banking", user_task_id=None, cases=8, exposed=6, unknown=2),),
    asr=(AsrRow(NASTY, NASTY, "banking", 8, 2, 0, 0, 0.25, float("nan")),),
    successes_without_exposure=(CASE,),
    benign_hits=(BenignHit(CASE, "injection_task_4"),),
    never_solved=(row(suite="banking", user_task_id="user_task_11", runs=3, recorded=0, rescored=0),),
    always_solved=(),
    state_equal=(),
    errors=(row(pipeline=NASTY, suite="banking", errored=3, stored_as_success=2),),
    hollow=(row(folder=NASTY, records=7),),
    asked_directly=(),
    skipped=(),
    destroyed=(
        row(suite="banking", user_task_id="user_task_0", cases=9, solved=0),
        row(suite="slack", user_task_id="user_task_7", cases=5, solved=1),
    ),
    answer_text=(
        row(pipeline=NASTY, suite="travel", cases=139, solved=75, lost=8, gained=0),
        row(pipeline=NASTY, suite="workspace", cases=5, solved=3, lost=1, gained=2),
    ),
)
REPORT = AuditReport(StaticAudit("agentdojo", "v1.2.2", "agentdojo 0.1.35", ()), FOUND)


def test_the_sentences_count_what_was_found_and_keep_errors_apart() -> None:
    assert write_trace_sentences(FOUND) == [
        "The stored runs hold 10 attacked and 4 benign records and 0 injection tasks run alone;"
        " 7 hollow records and 0 others could not be used.",
        "No tool returned the injection in: banking 25.0% (2 of 8).",
        "1 targeted attacks succeeded although no tool returned the injection (banking 15).",
        "2 of 3 attacked records that ended in an error are stored as successes.",
        "1 attack checks pass on benign records: banking 15.",
        "User tasks never solved without an attack, in 3 records each: banking 11.",
        "The user task was solved in 1 of 14 attacked records of tasks whose injection overwrites what they"
        " need (banking 0; slack 7).",
        "The last message of 144 records has an answer section among others: judged on it alone, the utility"
        " of 9 turns false and of 2 true.",
    ]


def test_names_from_records_do_no_markup_in_markdown() -> None:
    text = render_output(build_audit_output(REPORT), OutputFormat.MARKDOWN).decode()
    assert "<b>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a\\|b" in text


def test_names_from_records_steer_no_terminal() -> None:
    file = io.StringIO()
    document = build_audit_output(REPORT).document
    Console(file=file, width=200, force_terminal=False).print(terminal_document(document))
    assert "[red]x[/red]" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_json_has_no_nan_and_every_finding() -> None:
    data = json.loads(render_output(build_audit_output(REPORT), OutputFormat.JSON))
    assert data["runs"]["asr"][0]["asr_exposed"] is None
    assert data["runs"]["hollow"] == [{"folder": plain(NASTY), "records": 7}]
