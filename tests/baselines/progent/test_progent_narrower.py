"""Whether one policy allows nothing that another does not: restriction by restriction, and in a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_for_progent import Desk, Scripted, call, errors, rules, run

from baselines.progent.policy_model import WrittenPolicy, WrittenRule, is_narrower
from baselines.progent.progent_rules import find_condition_failure


def verdict(new: Any, old: Any) -> bool:
    new_rules, old_rules = ((WrittenRule("pay", {"to": condition}),) for condition in (new, old))
    return is_narrower(new_rules, old_rules, first_only=False)


NARROWER: list[tuple[Any, Any]] = [
    ({"enum": ["a"]}, {"enum": ["a", "b"]}),
    ({"const": 3}, {"maximum": 5}),
    ({"enum": ["ab1"]}, {"pattern": "^[a-z]+[0-9]$"}),
    ({"minimum": 2, "maximum": 3, "type": "integer"}, {"minimum": 1, "type": "number"}),
    ({"multipleOf": 4, "type": "number"}, {"multipleOf": 2}),
    ({"type": "string", "minLength": 5}, {"minLength": 3}),
    ({"type": "array", "items": {"enum": ["a"]}, "maxItems": 1}, {"items": {"enum": ["a", "b"]}}),
    ({"type": "boolean"}, {"type": ["boolean", "null"]}),
    ({"type": "string", "pattern": "^a", "maxLength": 4}, {"pattern": "^a", "maxLength": 5}),
]
WIDER: list[tuple[Any, Any]] = [
    ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}),
    ({"type": "string", "pattern": "a\\.org"}, {"pattern": "^https://a\\.org/"}),
    ({"type": "string", "pattern": "^https://a.org/"}, {"pattern": "^https://a\\.org/"}),
    ({"type": "string", "pattern": "^a$"}, {"const": "a"}),
    ({"minimum": 2}, {"minimum": 2, "type": "number"}),
    ({"type": "number", "minimum": 1}, {"exclusiveMinimum": 1}),
    ({"type": "number", "minimum": 1}, {"type": "integer", "minimum": 1}),
    ({"type": "string"}, {"enum": ["a"]}),
    ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"enum": ["a"]}}),
    ({"type": "array", "items": {"enum": ["a"]}}, {"type": "array", "items": {"enum": ["a"]}, "maxItems": 2}),
    ({}, {"type": "string"}),
    ({"type": "object"}, {"type": "string"}),
    ("ab", "abc"),
]
NOT_SHOWN: list[tuple[Any, Any]] = [
    ({"type": "string", "pattern": "^(?=a)"}, {"pattern": "^b"}),
    ({"type": "string", "pattern": "^ab"}, {"pattern": "^a"}),
    ({"anyOf": [{"const": "a"}, {"const": "b"}], "type": "string"}, {"enum": ["a", "b", "c"]}),
    ("abc", "ab"),
    (["a"], {"enum": ["a"]}),
    (
        {"$schema": "http://json-schema.org/draft-03/schema", "type": [{"type": "string"}], "multipleOf": 0},
        {"multipleOf": 0, "type": "string"},
    ),
    ({"type": "string", "pattern": "(a)\\1"}, {"minLength": 2}),
    ({"type": "object", "properties": {"x": {}}}, {"properties": {"x": {"const": 1}}}),
    (
        {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
        {"additionalProperties": False},
    ),
    ({"type": "array", "uniqueItems": True}, {"type": "array", "contains": {"const": 1}}),
]


@pytest.mark.parametrize(("new", "old"), NARROWER, ids=str)
def test_a_restriction_that_admits_no_more_is_narrower(new: Any, old: Any) -> None:
    assert verdict(new, old)


@pytest.mark.parametrize(("new", "old"), WIDER, ids=str)
def test_a_restriction_that_admits_more_is_not(new: Any, old: Any) -> None:
    assert not verdict(new, old)


@pytest.mark.parametrize(("new", "old"), NOT_SHOWN, ids=str)
def test_what_cannot_be_shown_to_be_narrower_is_wider(new: Any, old: Any) -> None:
    assert not verdict(new, old)


def policy(**tools: Any) -> WrittenPolicy:
    return tuple(WrittenRule(name, args) for name, args in tools.items())


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (policy(), policy(pay={}), True),
        (policy(pay={"to": {"const": "a"}}), policy(pay={}), True),
        (policy(pay={}), policy(pay={"to": {"const": "a"}}), False),
        (policy(mail={}), policy(pay={}), False),
    ],
)
def test_tools_and_arguments_that_one_side_lacks(
    new: WrittenPolicy, old: WrittenPolicy, expected: bool
) -> None:
    assert is_narrower(new, old, first_only=False) is expected


SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "number", "integer", "boolean", ["string", "null"]]),
        "minimum": st.integers(-2, 2),
        "maximum": st.integers(-2, 2),
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "pattern": st.sampled_from(["a", "^a", "a$", "^[ab]+$", "a|b", "^(a|b)$", ".", "^a?b*$", "^[^a]"]),
        "enum": st.lists(st.sampled_from(["a", "b", "ab", 0, 1, 2, None, True]), min_size=1, max_size=3),
    },
)
SAMPLES = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "aa\n",
    "c",
    "abab",
    "é",
    0,
    1,
    -1,
    2,
    2.5,
    0.5,
    True,
    False,
    None,
    [],
    {},
]


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_nothing_fits_a_narrower_schema_that_does_not_fit_the_wider_one(new: Any, old: Any) -> None:
    if verdict(new, old):
        for value in SAMPLES:
            fits = find_condition_failure("to", value, new) is None
            assert not fits or find_condition_failure("to", value, old) is None, (json.dumps(value), new, old)


def test_only_a_narrower_update_takes_effect() -> None:
    turns = [[call("get_note")], [call("pay", to="Eve")], [call("get_note")], [call("mail", to=["Bob"])]]
    replies = [
        rules(pay={}),
        "Yes",
        rules(pay={"to": {"enum": ["Bob"]}}),
        "Yes",
        rules(pay={}, mail={}),
        "No",
    ]
    results = errors(run(Scripted(turns, replies), Desk(), only_narrow=True))
    assert [error is None for error in results] == [True, False, True, False]
