"""Pieces of the audit that need no benchmark: numbers in short, argument kinds, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.analysis.tables.table_writers import OutputFormat, render_output
from agentsys.audit.audit_report import AuditReport, build_audit_output
from agentsys.audit.static.mutations import Mutation, alter_value, classify_argument
from agentsys.audit.static.static_audit import InjectionTaskAudit, StaticAudit, SuiteAudit, UserTaskAudit
from agentsys.audit.static.static_document import format_task_numbers, write_static_sentences
from agentsys.audit.static.task_checks import iterate_texts, split_words

WRONG = Mutation(2, "send_email", "recipients", "recipient", "required")
SUITE = SuiteAudit(
    "shop",
    "abc",
    (
        UserTaskAudit("user_task_0", noop_utility=True, surviving_mutations=(WRONG,)),
        UserTaskAudit("user_task_1", pair_compatible=("injection_task_0",), overwritten=("a_vector",)),
    ),
    (InjectionTaskAudit("injection_task_0"), InjectionTaskAudit("injection_task_1", empty_ground_truth=True)),
)
AUDIT = StaticAudit("agentdojo", "v9", "agentdojo 9.9", (SUITE,))


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
