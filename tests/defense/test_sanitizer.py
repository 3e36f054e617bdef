"""The sanitizer: cuts what a model points at, so it can take text away and never add any."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_for_defense import ScriptedModel, is_subsequence

from agentsys.defense.sanitizer import SANITIZER_CONTRACT, CleanedOutput, cut_spans, parse_spans, sanitize
from agentsys.models.chat import text_of
from agentsys.models.trace import ReplyFlaw
from agentsys.models.untrusted import Reader, Untrusted


def words(cleaned: CleanedOutput) -> str:
    return cleaned.text.open_for(Reader.RECORD)


@pytest.mark.parametrize(
    ("text", "spans", "left"),
    [
        ("x EVIL y EVIL z", ["EVIL"], "x  y  z"),  # every occurrence
        ("EV##IL", ["##", "EVIL"], "EVIL"),  # pieces that meet through a cut are no span
        ("a EVIL.", ["  EVIL\n"], "a ."),  # other blanks at its ends
        *(("a  b\n c", nothing, "a  b\n c") for nothing in ([], [""], [" ", "\n"], ["not there"])),
    ],
)
def test_spans_and_nothing_else_are_cut(text: str, spans: list[str], left: str) -> None:
    assert words(cut_spans(text, spans)) == left


def test_overlapping_spans_are_cut_as_one_piece() -> None:
    cleaned = cut_spans("abcdef", ["bcd", "cde"])
    assert words(cleaned) == "af" and cleaned.cut == ("bcde",)


@given(st.text("ab \n{", max_size=30), st.lists(st.text("ab \n{", max_size=4), max_size=4))
def test_the_cleaned_text_is_a_subsequence_and_holds_back_what_was_cut(text: str, spans: list[str]) -> None:
    cleaned = cut_spans(text, spans)
    assert is_subsequence(words(cleaned), text)
    assert len(words(cleaned)) + sum(map(len, cleaned.cut)) == len(text)


@pytest.mark.parametrize(
    "reply",
    ["", "nothing found", '{"spans": 3}', '{"spans": [1]}', '{"span": ["a"]}', '{"spans": ["a', "I can't."],
)
def test_a_malformed_reply_is_asked_for_again_and_cuts_nothing(reply: str) -> None:
    assert parse_spans(reply) is None
    cleaned = sanitize(model := ScriptedModel({"sanitizer": [reply, reply]}), Untrusted("a b"))
    assert words(cleaned) == "a b" and not cleaned.complete and model.used_up
    mended = sanitize(ScriptedModel({"sanitizer": [reply, '{"spans": ["b"]}']}), Untrusted("a b"))
    assert words(mended) == "a " and mended.complete


@pytest.mark.parametrize(
    "reply",
    [
        '{"spans": ["do it"]}',
        'Sure!\n```json\n{"spans": ["do it"]}\n```\nStay safe.',
        'Result {x}: {"spans": ["do it"]}',
        'As of [1], {"spans": ["do it",],}',
        '{"spans": ["do\n it"]}',
        '{"spans": ["do\\ it"]}',
        '["do it"]',
        '{"spans": "do it"}',
        '{"spans": [{"id": "1", "text": "do it"}]}',
        '{"reason": "planted", "spans": ["do it"]}',
    ],
)
def test_what_models_make_of_the_form_is_understood(reply: str) -> None:
    cleaned = sanitize(ScriptedModel({"sanitizer": [reply]}), Untrusted('x: "y do\\\n  \\ it z"'))
    assert cleaned.complete and cleaned.cut == ("do\\\n  \\ it",)


def test_no_spans_in_any_form_leave_the_text_as_it_is() -> None:
    for reply in ('{"spans": []}', "[]", 'None here: {"spans": [""]}'):
        cleaned = sanitize(ScriptedModel({"sanitizer": [reply]}), Untrusted("a b"))
        assert words(cleaned) == "a b" and cleaned.complete


def test_a_described_passage_is_asked_for_again_and_what_was_found_either_time_is_cut() -> None:
    replies = ['{"spans": ["b", "an order to pay"]}', '{"spans": ["pay eve"]}']
    cleaned = sanitize(model := ScriptedModel({"sanitizer": replies}), Untrusted("a b c pay eve"))
    assert (words(cleaned), cleaned.named, cleaned.missed, cleaned.complete) == ("a  c ", 3, 0, True)
    again = [text_of(message) for message in model.requests[1].messages]
    assert again[2] == replies[0] and again[3] == SANITIZER_CONTRACT.repairs[ReplyFlaw.WRONG_FORM]


@pytest.mark.parametrize("second", ['{"spans": ["an order"]}', '{"spans": []}', "I have said all."])
def test_a_passage_that_is_never_quoted_leaves_the_cleaning_incomplete(second: str) -> None:
    cleaned = sanitize(ScriptedModel({"sanitizer": ['{"spans": ["b", "orders"]}', second]}), Untrusted("a b"))
    assert words(cleaned) == "a " and cleaned.missed == 1 and not cleaned.complete


def test_a_reply_cannot_write_into_the_output() -> None:
    reply = json.dumps({"spans": ["b"], "text": "INJECTED"})
    assert words(sanitize(ScriptedModel({"sanitizer": [f"INJECTED {reply}"]}), Untrusted("a b c"))) == "a  c"


def test_a_blank_output_is_not_worth_a_question() -> None:
    assert words(sanitize(ScriptedModel({}), Untrusted(" \n"))) == " \n"
