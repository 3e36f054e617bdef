"""The sanitizer: cuts by exact match, so it can take text away and never add any."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_for_defense import ScriptedModel, is_subsequence

from agentsys.defense.sanitizer import cut, sanitize, spans_in


def test_every_occurrence_of_a_span_is_cut() -> None:
    assert cut("x EVIL y EVIL z", ["EVIL"]).text == "x  y  z"


def test_overlapping_spans_are_cut_as_one_piece() -> None:
    cleaned = cut("abcdef", ["bcd", "cde"])
    assert cleaned.text == "af" and cleaned.cut == ("bcde",)


def test_pieces_that_meet_through_a_cut_are_not_taken_for_a_span() -> None:
    assert cut("EV##IL", ["##", "EVIL"]).text == "EVIL"


def test_a_span_with_other_blanks_at_its_ends_is_still_found() -> None:
    assert cut("a EVIL.", ["  EVIL\n"]).text == "a ."


@pytest.mark.parametrize("spans", [[], [""], [" ", "\n"], ["not there"]])
def test_nothing_to_cut_leaves_the_text_byte_identical(spans: list[str]) -> None:
    assert cut("a  b\n c", spans).text == "a  b\n c"


@given(st.text("ab \n{", max_size=30), st.lists(st.text("ab \n{", max_size=4), max_size=4))
def test_the_cleaned_text_is_a_subsequence_and_holds_back_what_was_cut(text: str, spans: list[str]) -> None:
    cleaned = cut(text, spans)
    assert is_subsequence(cleaned.text, text)
    assert len(cleaned.text) + sum(map(len, cleaned.cut)) == len(text)


@pytest.mark.parametrize(
    "reply", ["", "nothing found", "[]", '{"spans": "a"}', '{"spans": [1]}', '{"span": ["a"]}']
)
def test_a_malformed_reply_cuts_nothing(reply: str) -> None:
    assert spans_in(reply) is None
    assert sanitize(ScriptedModel({"sanitizer": [reply]}), "a b") == "a b"


def test_a_reply_cannot_write_into_the_output() -> None:
    reply = json.dumps({"spans": ["b"], "text": "INJECTED"})
    assert sanitize(ScriptedModel({"sanitizer": [f"INJECTED {reply}"]}), "a b c") == "a  c"


def test_a_blank_output_is_not_worth_a_question() -> None:
    assert sanitize(ScriptedModel({}), " \n") == " \n"
