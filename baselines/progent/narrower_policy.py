"""`is_narrower`: whether a new policy can be shown to allow no call that the old one refused.

Keyword by keyword, without a solver: what cannot be shown so counts as wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from baselines.progent.policy_model import WrittenPolicy, WrittenRule
from baselines.progent.progent_rules import find_condition_failure, find_condition_fault

_KINDS = ("string", "number", "boolean", "null", "array", "object")
_ANNOTATIONS = frozenset(
    {"title", "description", "format", "default", "examples", "$id", "$comment", "deprecated"}
)
_KIND_OF = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("minItems", "maxItems", "items", "uniqueItems"), "array"),
}
"""Keyword -> the one kind of value that it says anything about."""
_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_SAME_IF_EQUAL = frozenset({*_KIND_OF, "type", "anyOf", "allOf", "oneOf", "not"} - {"items"})
"""Keywords whose meaning depends on no other one."""


def is_narrower(new: WrittenPolicy, old: WrittenPolicy, *, first_only: bool) -> bool:
    """Whether every call that the new rules allow was allowed by the old ones, as far as it can be shown.

    With `first_only` the first rules of each tool alone count, as in the reference.
    """
    if first_only:
        new, old = _first_entries(new), _first_entries(old)
    return all(any(one.tool == rule.tool and _is_rule_within(rule, one) for one in old) for rule in new)


def _first_entries(policy: WrittenPolicy) -> WrittenPolicy:
    return tuple({rule.tool: rule for rule in reversed(policy)}.values())


def _is_rule_within(new: WrittenRule, old: WrittenRule) -> bool:
    """Whether each restricted argument of the old rule is restricted at least as much by the new one."""
    return all(
        name in new.conditions and _is_condition_within(new.conditions[name], condition)
        for name, condition in old.conditions.items()
    )


def _is_condition_within(new: Any, old: Any) -> bool:
    """Whether every value that satisfies the first condition satisfies the second."""
    if new == old:
        return True
    if not isinstance(new, Mapping) or find_condition_fault(new) or find_condition_fault(old):
        return False
    listed = [new["const"]] if "const" in new else new.get("enum")
    if listed is not None:
        return all(
            find_condition_failure("", value, old) is None
            for value in listed
            if find_condition_failure("", value, new) is None
        )
    # Keywords are those of the newest draft; in others they may mean something else.
    if not isinstance(old, Mapping) or {"$schema", "prefixItems"} & {*new, *old}:
        return False
    types = _types_of(new)
    return all(
        key in _ANNOTATIONS or _is_keyword_implied(key, value, new, types) for key, value in old.items()
    )


def _types_of(schema: Mapping[str, Any]) -> set[str]:
    named: str | Sequence[str] = schema.get("type", _KINDS)
    return {named} if isinstance(named, str) else set(named)


def _is_keyword_implied(key: str, value: Any, new: Mapping[str, Any], types: set[str]) -> bool:
    """Whether what satisfies the new schema, of these types, satisfies one keyword of the old one."""
    kinds = {"number" if one == "integer" else one for one in types}
    if key in _KIND_OF and _KIND_OF[key] not in kinds:
        return True
    if key == "type":
        allowed = _types_of({key: value})
        return types <= (allowed | {"integer"} if "number" in allowed else allowed)
    if key == "items":
        return _is_condition_within(new.get(key, {}), value)
    if key not in new:
        return False
    if key == "multipleOf":
        return (Fraction(str(new[key])) / Fraction(str(value))).denominator == 1
    if key in _SAME_IF_EQUAL and new[key] == value:
        return True
    if key in _LOWER_BOUNDS or key in _UPPER_BOUNDS:
        return bool(new[key] >= value if key in _LOWER_BOUNDS else new[key] <= value)
    return False
