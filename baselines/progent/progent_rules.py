"""`PolicyRule`: rules on tool calls, the conditions they hold, and the options of a variant.

Conditions are JSON schemas or patterns, checked in bounded time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
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

UNSUPPORTED_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "patternProperties"})
"""Keywords that a rule may not have: they leave the schema, recurse in it, or match without bound."""
PATTERN_SECONDS = 1.0
"""Time limit per pattern: an injection may have influenced it, and some never finish."""
_SCHEMAS_KEPT = 1024
_PATTERN_ERRORS = (regex.error, RecursionError, ArithmeticError, ValueError, MemoryError)
"""Exceptions of compiling an invalid pattern."""
_SCHEMA_ERRORS = (re.error, *_PATTERN_ERRORS, Unresolvable, TimeoutError)
"""Exceptions of applying an unchecked schema."""


def find_condition_failure(name: str, value: Any, condition: Any) -> str | None:
    """Return why a value does not satisfy a condition, in jsonschema's words; None if it does.

    A text is a regular expression, matched from the value's start on. Whatever else a policy model wrote in
    place of a schema satisfies nothing.
    """
    if isinstance(condition, Mapping):
        return _find_schema_failure(value, condition)
    if not isinstance(condition, str):
        return f"The rule for '{name}' is a {type(condition).__name__}, which nothing can satisfy."
    try:
        text = value if isinstance(value, str) else json.dumps(value)
        holds = regex.match(condition, text, timeout=PATTERN_SECONDS) is not None
    except _SCHEMA_ERRORS as error:
        return f"The rule for '{name}' cannot be applied: {error}"
    return None if holds else f"The value {value!r} of '{name}' is not as {condition!r} asks."


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
    """Build the validator of a schema, given as JSON text; messages repeat its order of keys.

    It uses the newest draft unless `$schema` names another; no format checker, so that `format` never decides;
    and a registry of the drafts alone, so that no schema causes a fetch.
    """
    read = json.loads(schema)
    kind = validator_for(read, default=Draft202012Validator)
    kind.check_schema(read)
    return extend(kind, {"pattern": _check_pattern})(read, registry=REGISTRY)


def _check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[SchemaMismatch]:
    """Check a pattern as jsonschema does, but in bounded time."""
    if validator.is_type(value, "string") and not regex.search(pattern, value, timeout=PATTERN_SECONDS):
        yield SchemaMismatch(f"{value!r} does not match {pattern!r}")


def find_condition_fault(condition: Any) -> str | None:
    """Return the fault of a condition given as data, before any value is checked; None if it is valid."""
    if not isinstance(condition, str):
        return _find_schema_fault(condition)
    try:
        regex.compile(condition)
    except _PATTERN_ERRORS as error:
        return f"is no regular expression: {error}"
    return None


def _find_schema_fault(schema: Any) -> str | None:
    if not isinstance(schema, Mapping):
        return f"is a {type(schema).__name__}, not a schema"
    entries = list(_iterate_entries(schema))
    barred = sorted(UNSUPPORTED_KEYWORDS & {key for key, _ in entries})
    if barred:
        return f"has {barred[0]}, which no rule may have"
    for key, value in entries:
        if key == "pattern" and isinstance(value, str) and (fault := find_condition_fault(value)) is not None:
            return f"has a pattern that {fault}"
    try:
        _build_validator(json.dumps(schema))
    except SchemaError as error:
        return f"is no JSON Schema: {error.message}"
    except _SCHEMA_ERRORS as error:
        return f"cannot be applied: {error}"
    return None


def _iterate_entries(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, Mapping):
        yield from schema.items()
    for inner in (
        schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    ):
        yield from _iterate_entries(inner)


STANDING, WRITTEN = 1, 100
"""Priorities of the rules that a suite brings and of those that the policy model writes."""


class RuleEffect(Enum):
    """The effect of a rule whose conditions hold."""

    ALLOW = "allow"
    FORBID = "forbid"


class RefusalFallback(Enum):
    """Handling of a call that no rule allows."""

    MESSAGE = "message"
    """The agent is told, and goes on."""
    STOP = "stop"
    """The task ends."""
    ASK = "ask"
    """The user is asked. In a benchmark nobody answers, which counts as no."""


class PolicyRule(BaseModel):
    """One rule of one tool, as written in YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int = STANDING
    """Smaller numbers are checked first."""
    effect: RuleEffect = RuleEffect.ALLOW
    conditions: Mapping[str, dict[str, Any] | str] = {}
    """Argument -> its condition. Arguments absent from the call are skipped; no conditions always hold."""
    fallback: RefusalFallback = RefusalFallback.MESSAGE
    updates: dict[str, list[PolicyRule]] = {}
    """Tool -> its rules from then on, once this rule has allowed a call."""

    def find_failure(self, args: Mapping[str, Any]) -> str | None:
        """Return why the conditions do not hold for these arguments; None if they do."""
        for name, condition in self.conditions.items():
            if name in args and (why := find_condition_failure(name, args[name], condition)) is not None:
                return why
        return None


RuleTable = Mapping[str, Sequence[PolicyRule]]
"""Tool -> its rules, in the order in which they were made."""


@dataclass(frozen=True)
class PolicyDecision:
    """The rules' decision on one call."""

    allowed: bool
    cause: str = ""
    """Reason of a refusal, for the agent; empty if allowed."""
    fallback: RefusalFallback = RefusalFallback.MESSAGE
    by: PolicyRule | None = None
    """The rule that decided; None if there was none."""


def decide_call(
    rules: RuleTable | None, tool: str, args: Mapping[str, Any], *, first_only: bool
) -> PolicyDecision:
    """Evaluate the rules of a tool for one call; without rules (None) nothing is enforced.

    It is allowed by the first allowing rule whose conditions hold, unless a forbidding one came before it.
    Where no rule decides, the last rule's fallback holds. With `first_only` the first written rule of a tool
    has the last word, as in the reference.
    """
    if rules is None:
        return PolicyDecision(True)
    not_allowed, first_failure = f"The tool '{tool}' may not be used in this task.", ""
    fallback = RefusalFallback.MESSAGE
    # At equal priority forbidding rules come first, then the order of creation.
    for rule in sorted(rules.get(tool, ()), key=lambda r: (r.priority, r.effect is RuleEffect.ALLOW)):
        fallback, failure = rule.fallback, rule.find_failure(args)
        if failure is None and rule.effect is RuleEffect.ALLOW:
            return PolicyDecision(True, by=rule)
        if failure is None:
            return PolicyDecision(False, not_allowed, fallback, rule)
        if rule.effect is RuleEffect.ALLOW:
            first_failure = first_failure or failure
            if first_only and rule.priority == WRITTEN and fallback is RefusalFallback.MESSAGE:
                return PolicyDecision(False, failure, by=rule)
    return PolicyDecision(False, first_failure or not_allowed, fallback)


def merge_rules(first: RuleTable, second: RuleTable) -> dict[str, tuple[PolicyRule, ...]]:
    """Merge two tables of rules."""
    tools = [*first, *(tool for tool in second if tool not in first)]
    return {tool: (*first.get(tool, ()), *second.get(tool, ())) for tool in tools}


def allow_under(priority: int, conditions: Mapping[str, Any] | None = None) -> PolicyRule:
    """Build a rule that allows under these conditions, and whose refusals the agent is told."""
    # Unchecked: an invalid condition by the policy model satisfies nothing, and is no error.
    return PolicyRule.model_construct(priority=priority, conditions=conditions or {})


_RULES_ADAPTER = TypeAdapter(dict[str, list[PolicyRule]])


def read_config_rules(name: str, rules: Mapping[str, Any] | None) -> RuleTable:
    """Read the rules of a config.

    Raises:
        ConfigError: If they are not of this form, or a condition cannot be applied.
    """
    try:
        table = _RULES_ADAPTER.validate_python(dict(rules or {}))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name}: rules.{path}: {first['msg']}.") from None
    for tool, of_tool in table.items():
        _check_rules(f"{name}: rules.{tool}", of_tool)
    return table


def _check_rules(path: str, rules: Sequence[PolicyRule]) -> None:
    for rule in rules:
        for argument, condition in rule.conditions.items():
            fault = find_condition_fault(condition)
            if fault is not None:
                raise ConfigError(f"{path}: the condition on {argument} {fault}.")
        for tool, later in rule.updates.items():
            _check_rules(f"{path}.updates.{tool}", later)


PolicyPromptKind = Literal["general", "asb", "asb_hinted"]
StandingRules = Literal["suite", "none"]
OnUpdateError = Literal["keep", "raise"]


@dataclass(frozen=True)
class ProgentSettings:
    """Options of a variant; see `Progent`."""

    compat: bool = False
    generate: bool = True
    update: bool = True
    conditions: bool = True
    only_narrow: bool = False
    on_update_error: OnUpdateError = "keep"
    wording: PolicyPromptKind = "general"
    base_rules: StandingRules = "suite"
    rules: RuleTable = field(default_factory=dict)
    repair_array_enums: bool = False
    max_rounds: AtLeast1 = 15
    attempts: AtLeast1 = 6
    """Most replies asked for, for one policy."""

    @property
    def enforces_rules(self) -> bool:
        """True if any call can be refused."""
        return self.generate or self.base_rules != "none" or bool(self.rules)
