"""The audit on a terminal: what was found first, grouped, and never wider than it can be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentsys.audit.static.mutations import Mutation
from agentsys.audit.static.static_audit import InjectionTaskAudit, SuiteAudit, UserTaskAudit
from agentsys.audit.static.static_document import list_attack_findings, list_user_findings

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


def suite_of(row: UserTaskAudit) -> SuiteAudit:
    return replace(SUITE, user_tasks=(row,))


def test_what_was_found_is_listed_with_the_tasks_it_holds_of() -> None:
    assert [(one.statement, one.tasks) for one in list_user_findings(SUITE)] == [
        ("solved by doing nothing", ("user_task_1", "user_task_2")),
        ("can be solved after injection tasks 0 only", ("user_task_2",)),
        ("cannot be solved after any attack", ("user_task_3",)),
        ("fails after a call of get_unread_emails", ("user_task_3",)),
        ("wrong value unnoticed: create_calendar_event.title [required]", ("user_task_1", "user_task_4")),
    ]
    assert [(one.statement, one.tasks) for one in list_attack_findings(SUITE)] == [
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
    assert [found.statement for found in list_user_findings(suite_of(row))] == [says]
