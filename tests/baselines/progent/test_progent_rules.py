"""Progent's rules: order, effects, conditions, and what an argument may be."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.errors import ConfigError
from baselines.progent import progent_rules
from baselines.progent.defense import Progent
from baselines.progent.progent_rules import (
    PolicyRule,
    RefusalFallback,
    RuleEffect,
    allow_under,
    decide_call,
    find_condition_failure,
    find_condition_fault,
)


def forbid(priority: int, **conditions: Any) -> PolicyRule:
    return PolicyRule(priority=priority, effect=RuleEffect.FORBID, conditions=conditions)


def verdict(rules: Any, first_only: bool = False, **args: Any) -> bool:
    return decide_call({"pay": rules}, "pay", args, first_only=first_only).allowed


BOB, EVE = {"enum": ["Bob"]}, {"enum": ["Eve"]}


def test_the_first_failure_is_reported_and_without_a_deciding_rule_the_last_ones_fallback_holds() -> None:
    rules = [
        allow_under(1, {"to": BOB}),
        PolicyRule(priority=2, conditions={"to": {"const": "Ann"}}, fallback=RefusalFallback.STOP),
    ]
    decision = decide_call({"pay": rules}, "pay", {"to": "Eve"}, first_only=False)
    assert not decision.allowed
    assert decision.cause == (
        "'Eve' is not one of ['Bob']\n\nFailed validating 'enum' in schema:\n    {'enum': ['Bob']}\n\n"
        "On instance:\n    'Eve'"
    )
    assert decision.fallback is RefusalFallback.STOP
    forbidding = decide_call({"pay": [forbid(1, to=EVE)]}, "pay", {"to": "Bob"}, first_only=False)
    assert not forbidding.allowed and forbidding.fallback is RefusalFallback.MESSAGE


def test_a_missing_argument_never_refuses_and_every_argument_that_is_there_must_fit() -> None:
    both = [allow_under(1, {"to": BOB, "amount": {"maximum": 5}})]
    assert verdict(both)
    assert verdict(both, amount=5)
    assert not verdict(both, amount=6)
    assert not verdict(both, to="Bob", amount=6)
    assert not verdict(both, to="Eve", amount=5)


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ({"format": "email"}, "no address at all", True),
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "^b"}, "abc", False),
        ({"type": "string"}, None, False),
        ({"enum": ["a"]}, ["a"], False),
        ({"items": {"enum": ["a"]}}, ["a"], True),
        ({"items": {"enum": ["a"]}}, ["a", "b"], False),
        ({}, "anything", True),
        ("ab", "abc", True),
        ("b", "abc", False),
        ("7", 71, True),
        (["a"], "a", False),
        (None, None, False),
    ],
)
def test_what_a_condition_lets_through(condition: Any, value: Any, holds: bool) -> None:
    assert (find_condition_failure("to", value, condition) is None) is holds


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ({"type": "sentence"}, "x"),
        ({"pattern": "("}, "x"),
        ({"items": {"pattern": "(?P<"}}, ["x"]),
        ({"patternProperties": {"(": {}}}, {"x": 1}),
        ({"$ref": "https://example.org/schema"}, "x"),
        ({"anyOf": [{"$dynamicRef": "#x"}]}, "x"),
        (["Bob"], "Bob"),
        (None, None),
        ("(", "x"),
    ],
)
def test_a_condition_that_cannot_be_applied_is_found_beforehand_and_refuses_otherwise(
    condition: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: pytest.fail("a schema made us fetch something")
    )
    assert find_condition_fault(condition)
    assert find_condition_failure("to", value, condition)


@pytest.mark.parametrize("condition", [{"pattern": "^(a|aa)+$"}, "(a|aa)+$"])
def test_a_pattern_that_takes_for_ever_refuses(condition: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progent_rules, "PATTERN_SECONDS", 0.01)
    assert "cannot be applied" in (find_condition_failure("to", "a" * 200 + "!", condition) or "")
    assert find_condition_failure("to", "aaa", condition) is None


def test_a_schema_that_refers_to_itself_refuses() -> None:
    assert find_condition_failure("to", "x", {"$ref": "#"}) is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "pattern",
        "minimum",
        "multipleOf",
        "items",
        "properties",
        "$ref",
        "not",
        "anyOf",
    ]
)


@given(st.dictionaries(KEYWORDS, VALUES, max_size=4), VALUES)
def test_whatever_a_model_writes_either_fits_or_says_why_not(schema: Any, value: Any) -> None:
    said = find_condition_failure("to", value, schema)
    assert said is None or said
    assert find_condition_fault(schema) is None or isinstance(find_condition_fault(schema), str)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"pay": [{"priority": "high"}]}, "rules.pay.0.priority"),
        ({"pay": [{"effect": "maybe"}]}, "rules.pay.0.effect"),
        ({"pay": [{"conditons": {}}]}, "rules.pay.0.conditons"),
        ({"pay": [{"conditions": {"to": {"type": "sentence"}}}]}, "condition on to is no JSON Schema"),
        ({"pay": [{"updates": {"mail": [{"conditions": {"to": "("}}]}}]}, "rules.pay.updates.mail"),
    ],
)
def test_a_slip_in_rules_of_ones_own_is_told_with_its_place(rules: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        Progent(rules=rules)
