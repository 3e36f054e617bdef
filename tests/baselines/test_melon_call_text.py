"""The text of a call: the table of forms, and the reference's slip."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_for_melon import call

from baselines.melon.defense import KEY_ARGUMENTS
from baselines.melon.guarded_turn import write_compared_text

MAIL = {"subject": "Hi", "recipients": ["a@x.com", "b@x.com"], "body": "Hello"}
PAYMENT = {"subject": "Rent", "amount": 12.5, "recipient": "SE35", "date": "2022-01-01"}


@pytest.mark.parametrize(
    ("function", "args", "text"),
    [
        ("get_balance", {}, "get_balance()"),
        ("read_file", {"file_path": "a.txt"}, "read_file(file_path = a.txt)"),
        ("send_email", MAIL, "send_email(recipients = ['a@x.com', 'b@x.com'])"),
        ("send_money", PAYMENT, "send_money(amount = 12.5, recipient = SE35)"),
        ("send_money", {"recipient": "SE35"}, "send_money(recipient = SE35)"),
        ("send_email", {}, "send_email()"),
        ("search", {"b": 1, "a": None, "c": {"d": [True]}}, "search(b = 1, a = None, c = {'d': [True]})"),
        ("", {}, "()"),
    ],
)
def test_a_call_is_written_with_the_arguments_that_count_in_the_models_order(
    function: str, args: dict[str, Any], text: str
) -> None:
    assert write_compared_text(call(function, **args), KEY_ARGUMENTS) == text
    assert write_compared_text(call(function, **args), KEY_ARGUMENTS, "trimmed") == text


@pytest.mark.parametrize("function", ["send_email", "send_money"])
def test_a_call_of_which_no_argument_counts_keeps_its_name_unless_the_reference_is_followed(
    function: str,
) -> None:
    made = call(function, subject="Hi")
    assert write_compared_text(made, KEY_ARGUMENTS) == f"{function}()"
    assert write_compared_text(made, KEY_ARGUMENTS, "trimmed") == f"{function[:-1]})"
