"""`is_narrower`: whether a new policy allows no call that the old one refused, decided with z3.

Schemas and patterns are translated into terms; what cannot be translated counts as not narrower.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any

from agentsys.errors import find_missing_packages, not_installed_error
from baselines.progent.policy_model import WrittenPolicy, WrittenRule
from baselines.progent.progent_rules import find_condition_failure

JSON_KINDS = ("string", "number", "boolean", "null", "array", "object")
"""JSON's types; an integer is a number."""
TIMEOUT_MS = 5000
"""Most time for one question."""
_ANNOTATION_KEYWORDS = frozenset(
    {"title", "description", "format", "default", "examples", "$schema", "$id", "$comment", "deprecated"}
)
_APPLIES_TO = {
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("items", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems"), "array"),
    **dict.fromkeys(("properties", "required", "additionalProperties", "patternProperties"), "object"),
}
"""Keyword -> the one kind of value that it says anything about."""
_CLASSES = {"DIGIT": r"09", "SPACE": "\t\r  ", "WORD": "azAZ09__"}
"""Pairs of ends of ranges. ASCII alone; Python's classes hold other alphabets too, on both sides alike."""


class UndecidedError(Exception):
    """It cannot be told: a keyword or a pattern that is not translated, or no answer in time."""


def _drop_annotations(schema: Any) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        raise UndecidedError
    return {key: value for key, value in schema.items() if key not in _ANNOTATION_KEYWORDS}


def _schema_kinds(schema: Mapping[str, Any]) -> set[str]:
    named = schema.get("type", list(JSON_KINDS))
    types = {named} if isinstance(named, str) else set(named)
    return {"number" if one == "integer" else one for one in types}


def _are_scalars_within(new: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> bool:
    z3: Any = import_module("z3")
    variable = {"string": z3.String, "number": z3.Real, "boolean": z3.Bool}.get(kind, lambda _: None)("value")
    terms = _SchemaTerms(z3, kind, variable)
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(terms.translate(new), z3.Not(terms.translate(old)))
    answer = solver.check()
    if answer == z3.unknown:
        raise UndecidedError
    return bool(answer == z3.unsat)


class _SchemaTerms:
    def __init__(self, z3: Any, kind: str, variable: Any) -> None:
        self.z3, self.kind, self.variable = z3, kind, variable

    def translate(self, schema: Any) -> Any:
        """That the value satisfies the schema."""
        if isinstance(schema, bool):
            return self.z3.BoolVal(schema)
        parts = [self._translate_keyword(key, value) for key, value in _drop_annotations(schema).items()]
        return self.z3.And(self.z3.BoolVal(True), *parts)

    def _translate_keyword(self, key: str, value: Any) -> Any:
        z3, x = self.z3, self.variable
        if key in _APPLIES_TO and _APPLIES_TO[key] != self.kind:
            return z3.BoolVal(True)
        simple = {
            "minLength": lambda: z3.Length(x) >= value,
            "maxLength": lambda: z3.Length(x) <= value,
            "pattern": lambda: z3.InRe(x, PatternTerms(z3).translate(value)),
            "minimum": lambda: x >= _number(z3, value),
            "maximum": lambda: x <= _number(z3, value),
            "exclusiveMinimum": lambda: x > _number(z3, value),
            "exclusiveMaximum": lambda: x < _number(z3, value),
            "multipleOf": lambda: z3.IsInt(x / _number(z3, value)),
            "type": lambda: self._translate_type(value),
            "enum": lambda: z3.Or([self._translate_equal(one) for one in value]),
            "const": lambda: self._translate_equal(value),
            "allOf": lambda: z3.And([self.translate(one) for one in value]),
            "anyOf": lambda: z3.Or([self.translate(one) for one in value]),
            "oneOf": lambda: z3.PbEq([(self.translate(one), 1) for one in value], 1),
            "not": lambda: z3.Not(self.translate(value)),
        }
        if key not in simple:
            raise UndecidedError
        return simple[key]()

    def _translate_type(self, named: str | Sequence[str]) -> Any:
        types = [named] if isinstance(named, str) else named
        if self.kind != "number" or "number" in types:
            return self.z3.BoolVal(self.kind in types)
        return self.z3.IsInt(self.variable) if "integer" in types else self.z3.BoolVal(False)

    def _translate_equal(self, value: Any) -> Any:
        z3, of = self.z3, _kind(value)
        if of != self.kind:
            return z3.BoolVal(False)
        if of in ("array", "object"):
            raise UndecidedError
        if of == "null":
            return z3.BoolVal(True)
        return self.variable == (
            value if of == "boolean" else _text(z3, value) if of == "string" else _number(z3, value)
        )


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        return "array"
    return {str: "string", type(None): "null"}.get(type(value), "object")


def _number(z3: Any, value: float) -> Any:
    return z3.RealVal(str(value))


def _text(z3: Any, value: str) -> Any:
    return z3.StringVal(value.replace("\\", "\\u{5c}"))


class PatternTerms:
    """Regular expressions as z3's, for what a schema's `pattern` means: found somewhere in the text."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3
        self.anything = z3.Full(z3.ReSort(z3.StringSort()))

    def translate(self, pattern: str) -> Any:
        """All texts in which the pattern is found; undecided with look-around, back references or flags."""
        try:
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
        except (re.error, RecursionError, OverflowError):
            raise UndecidedError from None
        if parsed.state.flags & ~re.UNICODE:
            raise UndecidedError
        return self._with_anchors(list(parsed))

    def _with_anchors(self, items: list[Any]) -> Any:
        """A whole pattern: what may stand before it and behind it depends on its anchors."""
        items = _unwrap_group(items)
        if len(items) == 1 and str(items[0][0]) == "BRANCH":
            return self.z3.Union([self._with_anchors(list(branch)) for branch in items[0][1][1]])
        before, after = self.anything, self.anything
        if items and _anchor_kind(items[0]) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            before, items = self._literal(""), items[1:]
        if items and _anchor_kind(items[-1]) == "AT_END":  # also matches before a last line break
            after, items = self.z3.Option(self._literal("\n")), items[:-1]
        elif items and _anchor_kind(items[-1]) == "AT_END_STRING":
            after, items = self._literal(""), items[:-1]
        return self.z3.Concat(before, self._sequence(items), after)

    def _sequence(self, items: Sequence[Any]) -> Any:
        parts = [self._literal(""), self._literal(""), *(self._item(item) for item in items)]
        return self.z3.Concat(*parts)

    def _item(self, item: Any) -> Any:
        z3, (code, value) = self.z3, item
        match str(code), value:
            case "LITERAL", char:
                return self._literal(chr(char))
            case "NOT_LITERAL", char:
                return self._any_except(self._literal(chr(char)))
            case "ANY", _:
                return self._any_except(self._literal("\n"))
            case "IN", members:
                return self._set(members)
            case "BRANCH", (_, branches):
                return z3.Union([self._sequence(branch) for branch in branches])
            case "SUBPATTERN", (_, 0, 0, inside):  # No flags are added or removed.
                return self._sequence(inside)
            case "MAX_REPEAT" | "MIN_REPEAT", (least, most, inside):
                body = self._sequence(inside)
                if str(most) == "MAXREPEAT":
                    return z3.Concat(z3.Loop(body, least, least), z3.Star(body))
                return z3.Loop(body, least, most)
        raise UndecidedError

    def _set(self, members: Sequence[Any]) -> Any:
        negated = str(members[0][0]) == "NEGATE"
        return self._any_of([self._member(member) for member in members[negated:]], negated)

    def _any_of(self, ranges: Sequence[Any], negated: bool) -> Any:
        either = self.z3.Union([*ranges, *ranges])  # z3 wants two at least
        return self._any_except(either) if negated else either

    def _member(self, member: Any) -> Any:
        code, value = str(member[0]), member[1]
        if code == "LITERAL":
            return self._literal(chr(value))
        if code == "RANGE":
            return self._range(chr(value[0]), chr(value[1]))
        name = str(value).removeprefix("CATEGORY_")
        ends = _CLASSES.get(name.removeprefix("NOT_"))
        if code != "CATEGORY" or ends is None:
            raise UndecidedError
        pairs = [self._range(*ends[at : at + 2]) for at in range(0, len(ends), 2)]
        return self._any_of(pairs, name.startswith("NOT_"))

    def _range(self, first: str, last: str) -> Any:
        return self.z3.Range(_text(self.z3, first), _text(self.z3, last))

    def _any_except(self, excluded: Any) -> Any:
        one = self.z3.AllChar(self.z3.ReSort(self.z3.StringSort()))
        return self.z3.Diff(one, excluded)

    def _literal(self, text: str) -> Any:
        return self.z3.Re(_text(self.z3, text))


def _anchor_kind(item: Any) -> str:
    return str(item[1]) if str(item[0]) == "AT" else ""


def _unwrap_group(items: list[Any]) -> list[Any]:
    """The inside of a pattern that is one group, so that its own anchors are seen."""
    while len(items) == 1 and str(items[0][0]) == "SUBPATTERN" and not (items[0][1][1] or items[0][1][2]):
        items = list(items[0][1][3])
    return items


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
    """Look whether the package is there."""
    absent = find_missing_packages([PACKAGE])
    if absent:
        raise not_installed_error(f"{name} with only_narrow: true", absent, EXTRA)


def is_narrower(new: WrittenPolicy, old: WrittenPolicy, *, compat: bool) -> bool:
    """Whether every call that the new rules allow was allowed by the old ones.

    Where it cannot be decided the new rule is taken for wider. As in the reference (`compat`), the first
    rules of each tool alone count, and the new one is taken for narrower.
    """
    if compat:
        new, old = _first_entries(new), _first_entries(old)
    with _Z3:
        return all(
            any(one.tool == rule.tool and _is_rule_within(rule, one, compat) for one in old) for rule in new
        )


def _first_entries(policy: WrittenPolicy) -> WrittenPolicy:
    return tuple({rule.tool: rule for rule in reversed(policy)}.values())


def _is_rule_within(new: WrittenRule, old: WrittenRule, unknown: bool) -> bool:
    """Whether each restricted argument of the old rule is restricted at least as much by the new one."""
    for name, condition in old.conditions.items():
        try:
            if name not in new.conditions or not _is_condition_within(new.conditions[name], condition):
                return False
        except UndecidedError:
            if not unknown:
                return False
    return True


def _is_condition_within(new: Any, old: Any) -> bool:
    """Whether every value that satisfies the first condition satisfies the second."""
    if new == old:
        return True
    listed = _enumeration_values(new)
    if listed is not None:
        return all(
            find_condition_failure("", value, old) is None
            for value in listed
            if find_condition_failure("", value, new) is None
        )
    return _is_schema_within(_as_schema(new), _as_schema(old))


def _enumeration_values(condition: Any) -> Sequence[Any] | None:
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
    return _drop_annotations(condition)


def _is_schema_within(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    old = {key: value for key, value in old.items() if not _is_keyword_stricter(key, value, new)}
    return all(_is_kind_within(new, old, kind) for kind in JSON_KINDS if kind in _schema_kinds(new))


def _is_kind_within(new: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> bool:
    if kind not in ("array", "object"):
        return _are_scalars_within(new, old, kind)
    if kind not in _schema_kinds(old):
        return False
    if kind == "array":
        return _are_arrays_within(new, old)
    if old.keys() <= {"type"}:
        return True
    raise UndecidedError


def _is_keyword_stricter(key: str, value: Any, new: Mapping[str, Any]) -> bool:
    """Whether a keyword of the old schema stands in the new one, at least as strict: z3 need not be asked."""
    if key == "multipleOf" and key in new:
        return (Fraction(str(new[key])) / Fraction(str(value))).denominator == 1
    return key in _BY_ITSELF and key in new and new[key] == value


def _are_arrays_within(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if not (new.keys() | old.keys()) <= _OF_ARRAYS:
        raise UndecidedError
    most, least = new.get("maxItems", float("inf")), new.get("minItems", 0)
    if most > old.get("maxItems", float("inf")) or least < old.get("minItems", 0):
        return False
    if most == 0:
        return True
    return _is_condition_within(new.get("items", {}), old.get("items", {}))
