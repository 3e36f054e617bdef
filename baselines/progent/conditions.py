"""Conditions on an argument: a JSON Schema, a regular expression, or a function of the value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

Condition = Mapping[str, Any] | str | Callable[[Any], bool]
"""What a value must satisfy. A text is a regular expression, matched from the value's start on."""

REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
"""Keywords that lead out of the schema, or round in it: a written rule may not have them."""
_SCHEMAS_KEPT = 1024
_BREAKS = (re.error, Unresolvable, RecursionError, ArithmeticError)
"""What a schema that nobody checked can raise while it is applied."""


def failure(name: str, value: Any, condition: Any) -> str | None:
    """Why a value does not satisfy a condition; None if it does.

    Args:
        name: The argument's name.
        value: JSON-ready.
        condition: A `Condition`, or whatever a policy model wrote in its place: that satisfies nothing.

    Returns:
        For a schema the whole text of the jsonschema package: value, keyword, schema, instance.
    """
    if isinstance(condition, Mapping):
        return _schema_failure(value, condition)
    try:
        if isinstance(condition, str):
            holds = re.match(condition, value if isinstance(value, str) else json.dumps(value)) is not None
        elif callable(condition):
            holds = bool(condition(value))
        else:
            return f"The rule for '{name}' is a {type(condition).__name__}, which nothing can satisfy."
    except _BREAKS as error:
        return f"The rule for '{name}' cannot be applied: {error}"
    asked = f" as {condition!r} asks" if isinstance(condition, str) else ""
    return None if holds else f"The value {value!r} of '{name}' is not{asked or ' allowed'}."


def _schema_failure(value: Any, schema: Mapping[str, Any]) -> str | None:
    try:
        validator = _validator(json.dumps(schema))
        error = best_match(validator.iter_errors(value))
    except SchemaError as broken:
        return str(broken)
    except _BREAKS as broken:
        return f"The rule cannot be applied: {broken}"
    return None if error is None else str(error)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _validator(schema: str) -> Any:
    """The validator of a schema, as JSON text in its own order of keys, which messages repeat.

    The newest draft, unless `$schema` names another; no format checker, so that `format` never decides;
    a registry of the drafts alone, so that no schema makes us fetch something.

    Raises:
        SchemaError: If it is no valid schema.
    """
    read = json.loads(schema)
    kind = validator_for(read, default=Draft202012Validator)
    kind.check_schema(read)
    return kind(read, registry=REGISTRY)


def fault_of_condition(condition: Any) -> str | None:
    """What is wrong with a condition that is data, before any value is seen; None if nothing is."""
    if not isinstance(condition, str):
        return _fault_of_schema(condition)
    try:
        re.compile(condition)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    return None


def _fault_of_schema(schema: Any) -> str | None:
    """What is wrong with a schema before any value is seen; None if nothing is."""
    if not isinstance(schema, Mapping):
        return f"is a {type(schema).__name__}, not a schema"
    found = list(_inside(schema))
    referring = sorted(REFERENCES & {key for key, _ in found})
    if referring:
        return f"refers to something else ({referring[0]})"
    for key, value in found:
        for pattern in _patterns(key, value):
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                return f"has a pattern that is none: {error}"
    try:
        _validator(json.dumps(schema))
    except SchemaError as error:
        return f"is no JSON Schema: {error.message}"
    except _BREAKS as error:
        return f"cannot be applied: {error}"
    return None


def _patterns(key: str, value: Any) -> list[str]:
    if key == "pattern" and isinstance(value, str):
        return [value]
    return list(value) if key == "patternProperties" and isinstance(value, Mapping) else []


def _inside(schema: Any) -> Any:
    """Every key with its value, at any depth."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            yield key, value
            yield from _inside(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _inside(item)
