"""The audit on a terminal: what was found first, grouped, and never wider than it can be read."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from agentsys.analysis.tables.document import Grid, cells
from agentsys.analysis.tables.write_terminal import GridTables, terminal_document
from agentsys.audit.report import AuditReport, audit_document, audit_sentences
from agentsys.audit.static.document import static_sections
from agentsys.audit.static.findings import attack_findings, user_findings
from agentsys.audit.static.mutations import DROPPED, Mutation
from agentsys.audit.static.rows import InjectionTaskAudit, StaticAudit, SuiteAudit, UserTaskAudit

ATTACKS = tuple(f"injection_task_{number}" for number in range(2))
WRONG = Mutation(2, "create_calendar_event", "title", "title", "required")
FINE = UserTaskAudit("user_task_0", pair_compatible=ATTACKS, vectors_on_path=("a_vector",))
SUITE = SuiteAudit(
    "workspace",
    "abc",
    (
        FINE,
        replace(FINE, task="user_task_1", noop_utility=True, surviving_mutations=(WRONG,)),
        replace(FINE, task="user_task_2", noop_utility=True, pair_compatible=ATTACKS[:1]),
        replace(FINE, task="user_task_3", pair_compatible=(), reads_that_break=("get_unread_emails",)),
        replace(
            FINE, task="user_task_4", surviving_mutations=(replace(WRONG, call=7), replace(WRONG, call=8))
        ),
    ),
    (
        InjectionTaskAudit(ATTACKS[0], repeat_safe=False),
        InjectionTaskAudit(ATTACKS[1]),
        InjectionTaskAudit("injection_task_2", empty_ground_truth=True, own_ground_truth=False),
    ),
)
AUDIT = StaticAudit("agentdojo", "v9", "agentdojo 9.9", (SUITE,))


def suite_of(row: UserTaskAudit) -> SuiteAudit:
    return replace(SUITE, user_tasks=(row,))


def printed(audit: StaticAudit, width: int, *, every_task: bool = False) -> list[str]:
    report, file = AuditReport(audit), io.StringIO()
    document = audit_document(report, every_task=every_task)
    Console(file=file, width=width, force_terminal=False).print(terminal_document(document))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_what_was_found_is_listed_with_the_tasks_it_holds_of() -> None:
    assert [(one.says, one.tasks) for one in user_findings(SUITE)] == [
        ("solved by doing nothing", ("user_task_1", "user_task_2")),
        ("can be solved after injection tasks 0 only", ("user_task_2",)),
        ("cannot be solved after any attack", ("user_task_3",)),
        ("fails after a call of get_unread_emails", ("user_task_3",)),
        ("wrong value unnoticed: create_calendar_event.title [required]", ("user_task_1", "user_task_4")),
    ]
    assert [(one.says, one.tasks) for one in attack_findings(SUITE)] == [
        ("has a ground truth without calls, which does not pass", ("injection_task_2",)),
        ("fails when done twice", (ATTACKS[0],)),
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (replace(FINE, own_ground_truth=False), "fails on its own ground truth"),
        (replace(FINE, own_ground_truth=None), "has no ground truth that can be played"),
        (replace(FINE, empty_ground_truth=True), "has a ground truth without calls"),
        (replace(FINE, repeat_safe=False), "fails when done twice"),
        (replace(FINE, overwritten=("bill",)), "needs what bill overwrites"),
        (replace(FINE, identifier_vector=("name",)), "has to copy the text of name"),
        (replace(FINE, non_idempotent_check=True), "its check changes what it checks"),
        (
            replace(FINE, security_on_user_ground_truth=ATTACKS[:1]),
            "done honestly, satisfies injection tasks 0",
        ),
    ],
)
def test_every_flaw_of_a_user_task_has_its_words(row: UserTaskAudit, says: str) -> None:
    assert [found.says for found in user_findings(suite_of(row))] == [says]


def test_nothing_is_said_of_a_task_that_is_as_it_should_be() -> None:
    dropped = replace(WRONG, argument="", kind=DROPPED)
    fine = replace(FINE, repeat_safe=None, surviving_mutations=(dropped,))
    assert user_findings(suite_of(fine)) == []


def test_sentences_come_first_and_then_the_summary() -> None:
    lines = " ".join(printed(AUDIT, 120))
    places = [lines.index(text) for text in ("Audit of AgentDojo v9", "does nothing solves 2", "Summary")]
    assert places == sorted(places)
    assert len(audit_sentences(AuditReport(AUDIT))) > 3


@pytest.mark.parametrize("every_task", [False, True])
@pytest.mark.parametrize("width", [80, 120])
def test_the_audit_fits_a_terminal_and_loses_nothing(width: int, every_task: bool) -> None:
    four = tuple(replace(SUITE, suite=name) for name in ("workspace", "travel", "banking", "slack"))
    audit = replace(AUDIT, suites=four)
    lines = printed(audit, width, every_task=every_task)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert "create_calendar_event.title" in "".join(lines)


def test_more_suites_than_a_terminal_has_room_for_follow_below() -> None:
    ten = tuple(replace(SUITE, suite=f"a_rather_long_name_{number}") for number in range(10))
    (_, summary), *_ = static_sections(replace(AUDIT, suites=ten))
    assert [len(grid.header) for grid in summary] == [5, 5, 3]


def test_a_suite_without_findings_is_in_the_summary_only_unless_every_task_is_wanted() -> None:
    bare = replace(SUITE, suite="bare", user_tasks=(FINE,), injection_tasks=())
    bare = replace(bare, user_tasks=(replace(FINE, pair_compatible=()),))
    audit = replace(AUDIT, suites=(bare,))
    assert [heading for heading, _ in static_sections(audit)] == ["Summary"]
    (_, (grid,)) = static_sections(audit, every_task=True)[1]
    assert [cell.text for cell in grid.rows[0]] == ["user_task_0", "1", "-"]
    assert grid.header == ("user task", "vectors", "findings")


def test_only_columns_that_may_be_broken_are_broken() -> None:
    grid = Grid("", ("name", "text"), [cells("kept_in_one_piece", "word " * 30)], 2, wraps=frozenset({1}))
    file = io.StringIO()
    Console(file=file, width=40, force_terminal=False).print(GridTables(grid))
    assert "kept_in_one_piece" in file.getvalue()
    assert file.getvalue().count("word") == 30
