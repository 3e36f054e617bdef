"""`PolicyRule`: rules on tool calls, the conditions they hold, and the options of a variant.

Conditions are JSON schemas or patterns, checked in bounded time. `RuleForm` is a rule as it stands in a YAML;
`ProgentFix` lists the reference implementation's defects that `Progent` mends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.exceptions import ValidationError as SchemaMismatch
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from referencing.exceptions import Unresolvable

from agentsys.base.option_checks import AtLeast1
from agentsys.errors import ConfigError


class ProgentFix(Enum):
    """One mended defect."""

    CHECK_SUPPLIED_ARGUMENTS = "check_supplied_arguments"
    """An argument that was left out is not checked. Reference: its default is, and null fails."""
    READ_ARGUMENT_NAMES = "read_argument_names"
    """A schema of the whole arguments object is taken apart, and a rule for an argument that the tool does
    not have is asked for again. Reference: neither applies to anything, and so everything is allowed."""
    TRY_ALL_ENTRIES = "try_all_entries"
    """A call passes by any rule that the policy model wrote for its tool. Reference: by the first or not."""
    CHECK_SCHEMAS_WHEN_WRITTEN = "check_schemas_when_written"
    """A rule that cannot be applied is asked for again. Reference: it refuses every call."""
    UPDATE_ON_SUCCESS = "update_on_success"
    """Refused and failed calls start no update. Reference: they do, with empty results."""
    READ_WHOLE_WORDS = "read_whole_words"
    """Only the word no means no. Reference: so does "Nothing" or "Note that"."""
    READ_LOOSE_JSON = "read_loose_json"
    """A fence may lack its language, and a last entry may end in a comma. Reference: a failed attempt."""
    PROVE_NARROWER = "prove_narrower"
    """A new rule that cannot be shown to be narrower is wider. Reference: it is taken for narrower."""


NO_FIXES: frozenset[ProgentFix] = frozenset()
"""The reference implementation."""
ALL_FIXES: frozenset[ProgentFix] = frozenset(ProgentFix)
"""What one would want."""


ArgumentCondition = Mapping[str, Any] | str | Callable[[Any], bool]
"""What a value must satisfy. A text is a regular expression, matched from the value's start on."""

UNSUPPORTED_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "patternProperties"})
"""Keywords that a rule may not have: they lead out of the schema or round in it, or match without end."""
PATTERN_SECONDS = 1.0
"""Most time for one pattern: an injection may have had a say in it, and some take for ever."""
_SCHEMAS_KEPT = 1024
_PATTERN_ERRORS = (regex.error, RecursionError, ArithmeticError, ValueError, MemoryError)
"""What a text that is no pattern can raise when it is compiled."""
_SCHEMA_ERRORS = (re.error, *_PATTERN_ERRORS, Unresolvable, TimeoutError)
"""What a schema that nobody checked can raise while it is applied."""


def find_condition_failure(name: str, value: Any, condition: Any) -> str | None:
    """Why a value does not satisfy a condition; None if it does.

    Args:
        name: The argument's name.
        value: JSON-ready.
        condition: A `Condition`, or whatever a policy model wrote in its place: that satisfies nothing.

    Returns:
        For a schema the whole text of the jsonschema package: value, keyword, schema, instance.
    """
    if isinstance(condition, Mapping):
        return _find_schema_failure(value, condition)
    try:
        if isinstance(condition, str):
            text = value if isinstance(value, str) else json.dumps(value)
            holds = regex.match(condition, text, timeout=PATTERN_SECONDS) is not None
        elif callable(condition):
            holds = bool(condition(value))
        else:
            return f"The rule for '{name}' is a {type(condition).__name__}, which nothing can satisfy."
    except _SCHEMA_ERRORS as error:
        return f"The rule for '{name}' cannot be applied: {error}"
    asked = f" as {condition!r} asks" if isinstance(condition, str) else ""
    return None if holds else f"The value {value!r} of '{name}' is not{asked or ' allowed'}."


def _find_schema_failure(value: Any, schema: Mapping[str, Any]) -> str | None:
    try:
        validator = _build_validator(json.dumps(schema))
        error = best_match(validator.iter_errors(value))
    except SchemaError as broken:
        return str(broken)
    except _SCHEMA_ERRORS as broken:
        return f"The rule cannot be applied: {broken}"
    return None if error is None else str(error)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _build_validator(schema: str) -> Any:
    """The validator of a schema, as JSON text in its own order of keys, which messages repeat.

    The newest draft, unless `$schema` names another; no format checker, so that `format` never decides;
    a registry of the drafts alone, so that no schema makes us fetch something.

    Raises:
        SchemaError: If it is no valid schema.
    """
    read = json.loads(schema)
    kind = validator_for(read, default=Draft202012Validator)
    kind.check_schema(read)
    return extend(kind, {"pattern": _check_pattern})(read, registry=REGISTRY)


def _check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[SchemaMismatch]:
    """As jsonschema has it, but in bounded time."""
    if validator.is_type(value, "string") and not regex.search(pattern, value, timeout=PATTERN_SECONDS):
        yield SchemaMismatch(f"{value!r} does not match {pattern!r}")


def find_condition_fault(condition: Any) -> str | None:
    """What is wrong with a condition that is data, before any value is seen; None if nothing is."""
    if not isinstance(condition, str):
        return _find_schema_fault(condition)
    try:
        regex.compile(condition)
    except _PATTERN_ERRORS as error:
        return f"is no regular expression: {error}"
    return None


def _find_schema_fault(schema: Any) -> str | None:
    """What is wrong with a schema before any value is seen; None if nothing is."""
    if not isinstance(schema, Mapping):
        return f"is a {type(schema).__name__}, not a schema"
    found = list(_iterate_keys(schema))
    barred = sorted(UNSUPPORTED_KEYWORDS & {key for key, _ in found})
    if barred:
        return f"has {barred[0]}, which no rule may have"
    for pattern in [value for key, value in found if key == "pattern" and isinstance(value, str)]:
        fault = find_condition_fault(pattern)
        if fault is not None:
            return f"has a pattern that {fault}"
    try:
        _build_validator(json.dumps(schema))
    except SchemaError as error:
        return f"is no JSON Schema: {error.message}"
    except _SCHEMA_ERRORS as error:
        return f"cannot be applied: {error}"
    return None


def _iterate_keys(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            yield key, value
            yield from _iterate_keys(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _iterate_keys(item)


STANDING, WRITTEN = 1, 100
"""Priorities of the rules that a suite brings and of those that the policy model writes."""


class RuleEffect(Enum):
    """What a rule whose conditions hold does."""

    ALLOW = "allow"
    FORBID = "forbid"


class RefusalFallback(Enum):
    """What becomes of a call that no rule let pass."""

    MESSAGE = "message"
    """The agent is told, and goes on."""
    STOP = "stop"
    """The task ends."""
    ASK = "ask"
    """The user is asked. Nobody is there in a benchmark, and the answer that is assumed is no."""


@dataclass(frozen=True)
class PolicyRule:
    """One rule of one tool."""

    priority: int
    """Smaller numbers are looked at first."""
    effect: RuleEffect = RuleEffect.ALLOW
    conditions: Mapping[str, ArgumentCondition] = field(default_factory=lambda: MappingProxyType({}))
    """Argument -> what it must satisfy. One that is not in the call is skipped; none at all always hold."""
    fallback: RefusalFallback = RefusalFallback.MESSAGE
    updates: Mapping[str, tuple[PolicyRule, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Tool -> the rules it has from now on, once a call has passed by this rule."""

    def find_failure(self, args: Mapping[str, Any]) -> str | None:
        """Why the conditions do not hold for these arguments; None if they do."""
        for name, condition in self.conditions.items():
            if name in args and (why := find_condition_failure(name, args[name], condition)) is not None:
                return why
        return None


RuleTable = Mapping[str, Sequence[PolicyRule]]
"""Tool -> its rules, in the order in which they were made."""


@dataclass(frozen=True)
class PolicyDecision:
    """What the rules say about one call."""

    allowed: bool
    cause: str = ""
    """Why it is refused, for the agent; empty where it is allowed."""
    fallback: RefusalFallback = RefusalFallback.MESSAGE
    by: PolicyRule | None = None
    """The rule that decided; None where there was none."""


def decide_call(
    rules: RuleTable | None, tool: str, args: Mapping[str, Any], *, first_only: bool
) -> PolicyDecision:
    """Evaluate the rules of a tool for one call.

    Args:
        rules: None: nothing is enforced.
        tool: Its name.
        args: JSON-ready.
        first_only: Whether the first written rule of a tool has the last word, as in the reference.

    Returns:
        Allowed by the first allowing rule whose conditions hold, unless a forbidding one came before it.
        Where no rule decides, the last rule's fallback holds.
    """
    if rules is None:
        return PolicyDecision(True)
    own = rules.get(tool, ())
    if not own:
        return PolicyDecision(False, write_not_allowed(tool))
    first_failure = ""
    for rule in order_rules(own):
        broken = rule.find_failure(args)
        if rule.effect is RuleEffect.FORBID:
            if broken is None:
                return PolicyDecision(False, write_not_allowed(tool), rule.fallback, rule)
        elif broken is None:
            return PolicyDecision(True, by=rule)
        else:
            first_failure = first_failure or broken
            if first_only and rule.priority == WRITTEN and rule.fallback is RefusalFallback.MESSAGE:
                return PolicyDecision(False, broken, by=rule)
    return PolicyDecision(False, first_failure or write_not_allowed(tool), order_rules(own)[-1].fallback)


def order_rules(rules: Sequence[PolicyRule]) -> list[PolicyRule]:
    """By priority; of equal ones those that forbid come first, then the order they were made in."""
    return sorted(rules, key=lambda rule: (rule.priority, rule.effect is not RuleEffect.FORBID))


def write_not_allowed(tool: str) -> str:
    """The cause where it lies in the tool and not in an argument."""
    return f"The tool '{tool}' may not be used in this task."


def merge_rules(first: RuleTable, second: RuleTable) -> dict[str, tuple[PolicyRule, ...]]:
    """The rules of both."""
    tools = [*first, *(tool for tool in second if tool not in first)]
    return {tool: (*first.get(tool, ()), *second.get(tool, ())) for tool in tools}


def allow_under(priority: int, conditions: Mapping[str, ArgumentCondition] | None = None) -> PolicyRule:
    """A rule that allows under these conditions, and whose refusals are told to the agent."""
    return PolicyRule(priority, conditions=MappingProxyType(dict(conditions or {})))


class RuleForm(BaseModel):
    """One rule, as it stands in a YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int = STANDING
    effect: Literal["allow", "forbid"] = "allow"
    conditions: dict[str, dict[str, Any] | str] = {}
    """Argument -> JSON Schema, or a regular expression that the value must begin with."""
    fallback: Literal["message", "stop", "ask"] = "message"
    updates: dict[str, list[RuleForm]] = {}
    """Tool -> the rules it has once a call has passed by this one."""

    def as_rule(self) -> PolicyRule:
        """As it is evaluated."""
        return PolicyRule(
            self.priority,
            RuleEffect(self.effect),
            MappingProxyType(dict(self.conditions)),
            RefusalFallback(self.fallback),
            MappingProxyType({tool: _build_rules(forms) for tool, forms in self.updates.items()}),
        )


_RULES_ADAPTER = TypeAdapter(dict[str, list[RuleForm]])


def read_config_rules(name: str, given: Mapping[str, Any] | None) -> RuleTable:
    """The rules of a config.

    Raises:
        ConfigError: If they are not of this form, or a condition cannot be applied.
    """
    try:
        forms = _RULES_ADAPTER.validate_python(dict(given or {}))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name}: rules.{place}: {first['msg']}.") from None
    for tool, rules in forms.items():
        _check_forms(f"{name}: rules.{tool}", rules)
    return MappingProxyType({tool: _build_rules(rules) for tool, rules in forms.items()})


def _build_rules(forms: Sequence[RuleForm]) -> tuple[PolicyRule, ...]:
    return tuple(form.as_rule() for form in forms)


def _check_forms(place: str, forms: Sequence[RuleForm]) -> None:
    for form in forms:
        for argument, condition in form.conditions.items():
            fault = find_condition_fault(condition)
            if fault is not None:
                raise ConfigError(f"{place}: the condition on {argument} {fault}.")
        for tool, later in form.updates.items():
            _check_forms(f"{place}.updates.{tool}", later)


PolicyPromptKind = Literal["general", "asb", "asb_hinted"]
StandingRules = Literal["suite", "none"]
OnUpdateError = Literal["keep", "raise"]


@dataclass(frozen=True)
class ProgentSettings:
    """What a variant of Progent does. Options as in `Progent`, which explains them."""

    generate: bool = True
    update: bool = True
    conditions: bool = True
    only_narrow: bool = False
    on_update_error: OnUpdateError = "keep"
    wording: PolicyPromptKind = "general"
    base_rules: StandingRules = "suite"
    rules: RuleTable = field(default_factory=lambda: MappingProxyType({}))
    repair_array_enums: bool = False
    fixes: frozenset[ProgentFix] = ALL_FIXES
    """Which of the reference's defects are mended."""
    max_rounds: AtLeast1 = 15
    attempts: AtLeast1 = 6
    """Most replies asked for, for one policy."""

    def fixes_defect(self, fix: ProgentFix) -> bool:
        """Whether one of the reference's defects is mended."""
        return fix in self.fixes

    @property
    def enforces_rules(self) -> bool:
        """Whether any call can be refused."""
        return self.generate or self.base_rules != "none" or bool(self.rules)
