"""The audit on a terminal and in JSON: what was found first, grouped, and never wider than it can be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from stored_cases import published, stored
from typer.testing import CliRunner

from agentsys.analysis.tables.table_document import OutputFormat
from agentsys.cli import app
from agentsys.cli.cli_output import render_output
from agentsys.errors import ConfigError
from agentsys_plugins.audit.audit_report import AuditReport, build_audit_output
from agentsys_plugins.audit.static.mutations import Mutation, alter_value, classify_argument
from agentsys_plugins.audit.static.static_audit import (
    InjectionTaskAudit,
    StaticAudit,
    SuiteAudit,
    UserTaskAudit,
)
from agentsys_plugins.audit.static.static_document import (
    format_task_numbers,
    list_attack_findings,
    list_user_findings,
    write_static_sentences,
)
from agentsys_plugins.audit.static.task_checks import iterate_texts, split_words

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


def test_attacks_that_the_user_task_hides_have_a_line_and_a_sentence() -> None:
    hiding = replace(
        SUITE,
        user_tasks=(*SUITE.user_tasks[:4], replace(FINE, task="user_task_4", undone_by_user_task=ATTACKS)),
    )
    audit = StaticAudit("agentdojo", "v1.2.2", "agentdojo 0.1.35", (hiding,))
    told = [(one.statement, one.tasks) for one in list_user_findings(hiding)]
    assert ("hides injection tasks 0, 1 that were carried out", ("user_task_4",)) in told
    (sentence,) = [one for one in write_static_sentences(audit) if "hides" in one]
    assert sentence == (
        "In 2 pairs an attack that was carried out counts as failed, because the user's own task hides it:"
        " workspace 4 with 0, 1."
    )
    output = build_audit_output(AuditReport(audit, None))
    assert "hides injection tasks 0, 1" in render_output(output, OutputFormat.MARKDOWN).decode()


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


BANKING = "benchmark.suites=[banking]"


def audited(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])  # type: ignore[return-value]


def test_json_goes_to_standard_output_alone() -> None:
    result = audited(BANKING, "--format", "json")
    data = json.loads(result.stdout)
    assert data["version"] == "v1.2.2"
    assert len(data["suites"][0]["user_tasks"]) == 16


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["model=simulated"], "no place in an audit"),
        (["benchmark.version=v9"], "Unknown version of agentdojo 'v9'"),
        (["benchmark.version=v1,v1.1"], "one benchmark in one version"),
        (["runs=/no/such/folder"], "no such folder"),
    ],
)
def test_a_slip_is_one_line_before_anything_is_worked_out(arguments: list[str], says: str) -> None:
    result = audited(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert says in str(result.exception)


def test_stored_runs_are_audited_without_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "runs", published())
    monkeypatch.setattr(
        "agentsys_plugins.audit.static.static_audit.audit_benchmark", lambda _: pytest.fail("audited")
    )
    found = json.loads(audited(f"runs={tmp_path / 'runs'}", "--format", "json").stdout)
    assert (found["version"], found["suites"], found["runs"]["benign"]) == ("v1.2.2", [], 1)
    assert found["sentences"][0].startswith("The stored runs hold")


WRONG_VALUE = Mutation(2, "send_email", "recipients", "recipient", "required")
AUDITED = SuiteAudit(
    "shop",
    "abc",
    (
        UserTaskAudit("user_task_0", noop_utility=True, surviving_mutations=(WRONG_VALUE,)),
        UserTaskAudit("user_task_1", pair_compatible=("injection_task_0",), overwritten=("a_vector",)),
    ),
    (InjectionTaskAudit("injection_task_0"), InjectionTaskAudit("injection_task_1", empty_ground_truth=True)),
)
AUDIT = StaticAudit("agentdojo", "v9", "agentdojo 9.9", (AUDITED,))


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ([], "none"),
        (["user_task_3"], "3"),
        (["user_task_1", "user_task_0"], "0, 1"),
        (["t_6", "t_7", "t_8", "t_10", "t_2"], "2, 6-8, 10"),
        (["odd", "t_4"], "4, odd"),
    ],
)
def test_tasks_are_named_by_their_numbers_and_three_in_a_row_are_a_range(tasks: list[str], text: str) -> None:
    assert format_task_numbers(tasks) == text


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("recipients", ["a"], "recipient"),
        ("user_email", "a@b.c", "e-mail"),
        ("user", "Dora", "recipient"),
        ("recurring", True, "flag"),
        ("amount", 3, "amount"),
        ("new_start_time", "2024-01-01 10:00", "date"),
        ("event_id", "4", "id"),
        ("subject", "Hi", "text"),
    ],
)
def test_an_argument_is_sorted_by_its_name_and_value(name: str, value: object, kind: str) -> None:
    assert classify_argument(name, value) == kind


_VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(-1e6, 1e6),
    st.text(),
    st.sampled_from(["a@b.c", "2024-05-01", "77", "Bob", "r"]),
    st.lists(st.text(), max_size=4),
)


@given(_VALUES)
def test_an_altered_argument_is_never_the_value_itself(value: object) -> None:
    for options in alter_value(value):
        assert all(option != value for option in options)


@given(st.lists(st.text(), max_size=5))
def test_a_list_is_altered_in_each_of_its_items_and_one_at_a_time(items: list[str]) -> None:
    ways = alter_value(items)
    assert len(ways) == len(items)
    for place, options in enumerate(ways):
        for option in options:
            assert [i for i, item in enumerate(option) if item != items[i]] == [place]


def test_words_of_data_hold_amounts_accounts_and_names_whole() -> None:
    data = {"bill": ["IBAN: UK12, 98.70!", {"External_0": 4}], "when": None}
    assert {"uk12", "98.70", "external_0", "4", "bill"} <= split_words(iterate_texts(data))


def test_json_has_every_field_of_every_task_and_the_sentences() -> None:
    data: dict[str, Any] = json.loads(
        render_output(build_audit_output(AuditReport(AUDIT)), OutputFormat.JSON)
    )
    (suite,) = data["suites"]
    assert suite["summary"]["pairs"] == 2
    assert suite["user_tasks"][0]["surviving_mutations"][0]["argument"] == "recipients"
    assert suite["injection_tasks"][1]["empty_ground_truth"] is True
    assert data["sentences"] == write_static_sentences(AUDIT)


def test_names_from_a_benchmark_do_no_markup() -> None:
    odd = SuiteAudit(
        "<b>|x", "", (UserTaskAudit("user_task_0", overwritten=("[a](b)",), noop_utility=True),), ()
    )
    text = render_output(
        build_audit_output(AuditReport(replace(AUDIT, suites=(odd,)))), OutputFormat.MARKDOWN
    ).decode()
    assert "<b>" not in text
    assert "[a](b)" not in text
