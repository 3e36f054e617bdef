"""What counts as taken from a tool output."""

from __future__ import annotations

from typing import Any

from agentsys.benchmarks.ground_truth_playbook import find_facts
from agentsys.simulated.playbook_index import ScriptedCall


def taken(prompt: str, answer: str, *steps: tuple[dict[str, Any], str]) -> list[tuple[str, int]]:
    calls = [ScriptedCall("tool", args) for args, _ in steps]
    facts = find_facts("suite_task", prompt, calls, answer, [output for _, output in steps])
    return [(fact.text, fact.source) for fact in facts]


def test_an_argument_that_stands_in_an_earlier_output_is_one_fact() -> None:
    assert taken("Go.", "", ({}, "name: Ann Lee"), ({"to": "Ann Lee"}, "ok")) == [("Ann Lee", 0)]


def test_an_argument_that_mixes_both_gives_the_words_that_were_read() -> None:
    steps = (({}, "'hotel': 'Luxury Palace'"), ({"title": "Booking hotel Luxury Palace"}, ""))
    assert taken("Title: Booking hotel <name>", "", *steps) == [("Luxury Palace", 0)]


def test_the_source_is_the_first_output_and_each_text_counts_once() -> None:
    steps = (({}, "x"), ({}, "code 4711"), ({}, "code 4711"))
    assert taken("Go.", "4711, I say 4711", *steps) == [("4711", 1)]


def test_an_amount_is_looked_for_as_it_is_printed() -> None:
    assert taken("Go.", "", ({}, "Total: 98.70"), ({"amount": 98.7}, "")) == [("98.70", 0)]
    assert taken("Go.", "", ({}, "id: 5"), ({"amount": 5.0}, "")) == []
    assert taken("Go.", "", ({}, "id: 7"), ({"id": 7}, "")) == [("7", 0)]


def test_fields_number_the_values_of_each_source() -> None:
    calls = [ScriptedCall("tool", {}), ScriptedCall("tool", {})]
    facts = find_facts("s_t", "Go.", calls, "alpha1, beta2, gamma3", ["alpha1 gamma3", "beta2"])
    assert [fact.field for fact in facts] == [
        "s_t_call_0_value_0",
        "s_t_call_1_value_0",
        "s_t_call_0_value_1",
    ]
