"""Conditions on an argument: a JSON Schema, a regular expression, or a function of the value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

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


def _check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """As jsonschema has it, but in bounded time."""
    if validator.is_type(value, "string") and not regex.search(pattern, value, timeout=PATTERN_SECONDS):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


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
