"""Whether a rewritten policy allows nothing that the old one did not (needs the extra `z3`).

Values that a restriction lists are tried one by one on the old restriction. What describes infinitely many is
translated: is there a text, a number or a truth value that satisfies the new one and not the old?
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from agentsys.errors import find_missing_packages, not_installed_error
from baselines.progent.conditions import find_condition_failure
from baselines.progent.policy_reply import WrittenPolicy, WrittenRule
from baselines.progent.z3_terms import JSON_KINDS, UndecidedError, schema_kinds, is_satisfiable, drop_annotations

EXTRA, PACKAGE = "z3", "z3"
_Z3 = threading.Lock()
"""z3's expressions share one context, which may be used by one thread at a time."""
_BY_ITSELF = frozenset(
    {"type", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "uniqueItems"}
)
"""Keywords whose meaning depends on no other one."""
_OF_ARRAYS = frozenset({"type", "items", "minItems", "maxItems"})


def require_z3(name: str) -> None:
    """Look whether the package is there.

    Raises:
        Unavailable: If it is not.
    """
    absent = find_missing_packages([PACKAGE])
    if absent:
        raise not_installed_error(f"{name} with only_narrow: true", absent, EXTRA)


def is_narrower(new: WrittenPolicy, old: WrittenPolicy, *, first_only: bool, unknown_is_narrower: bool) -> bool:
    """Whether every call that the new rules allow was allowed by the old ones.

    Args:
        new: The rewritten policy.
        old: The one in force.
        first_only: Compare the first rules of each tool alone, as they alone are consulted.
        unknown_is_narrower: What to take for granted where it cannot be decided.
    """
    before = _first_entries(old) if first_only else old
    after = _first_entries(new) if first_only else new
    with _Z3:
        return all(
            any(one.tool == rule.tool and _is_rule_within(rule, one, unknown_is_narrower) for one in before)
            for rule in after
        )


def _first_entries(policy: WrittenPolicy) -> WrittenPolicy:
    return tuple({rule.tool: rule for rule in reversed(policy)}.values())


def _is_rule_within(new: WrittenRule, old: WrittenRule, unknown: bool) -> bool:
    """Whether each restricted argument of the old rule is restricted at least as much by the new one."""
    return all(
        name in new.conditions and _is_argument_within(new.conditions[name], condition, unknown)
        for name, condition in old.conditions.items()
    )


def _is_argument_within(new: Any, old: Any, unknown: bool) -> bool:
    try:
        return _is_condition_within(new, old)
    except UndecidedError:
        return unknown


def _is_condition_within(new: Any, old: Any) -> bool:
    """Whether every value that satisfies the first condition satisfies the second.

    Raises:
        Undecided: If that cannot be told.
    """
    if new == old:
        return True
    listed = _enumeration_values(new)
    if listed is not None:
        return all(find_condition_failure("", value, old) is None for value in listed if find_condition_failure("", value, new) is None)
    return _is_schema_within(_as_schema(new), _as_schema(old))


def _enumeration_values(condition: Any) -> Sequence[Any] | None:
    """The values of an enumeration; None if it is none."""
    if not isinstance(condition, Mapping):
        return None
    if "const" in condition:
        return [condition["const"]]
    values = condition.get("enum")
    return values if isinstance(values, list) else None


def _as_schema(condition: Any) -> Mapping[str, Any]:
    if isinstance(condition, str):
        return {"type": "string", "pattern": f"^(?:{condition})"}
    if not isinstance(condition, Mapping):
        raise UndecidedError
    return drop_annotations(condition)


def _is_schema_within(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    old = {key: value for key, value in old.items() if not _is_keyword_stricter(key, value, new)}
    return all(_BY_KIND.get(kind, _are_scalars_within)(new, old, kind) for kind in JSON_KINDS if kind in schema_kinds(new))


def _is_keyword_stricter(key: str, value: Any, new: Mapping[str, Any]) -> bool:
    """Whether a keyword of the old schema stands in the new one, at least as strict: z3 need not be asked."""
    if key == "multipleOf" and key in new:
        return (Fraction(str(new[key])) / Fraction(str(value))).denominator == 1
    return key in _BY_ITSELF and key in new and new[key] == value


def _are_scalars_within(new: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> bool:
    return not is_satisfiable(new, old, kind)


def _are_arrays_within(new: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> bool:
    if kind not in schema_kinds(old):
        return False
    if not (new.keys() | old.keys()) <= _OF_ARRAYS:
        raise UndecidedError
    most, least = new.get("maxItems", float("inf")), new.get("minItems", 0)
    if most > old.get("maxItems", float("inf")) or least < old.get("minItems", 0):
        return False
    if most == 0:
        return True
    return _is_condition_within(new.get("items", {}), old.get("items", {}))


def _are_objects_within(new: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> bool:
    if kind not in schema_kinds(old):
        return False
    if old.keys() <= {"type"}:
        return True
    raise UndecidedError


_BY_KIND: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any], str], bool]] = {
    "array": _are_arrays_within,
    "object": _are_objects_within,
}
