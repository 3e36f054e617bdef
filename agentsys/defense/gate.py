"""The return gate: decides, without a model, what of a worker's reply reaches its caller.

`syntactic` is the paper's rule (section 5.2): from the first `{` to its matching `}`, valid JSON,
an object. `schema` also holds the value against the declared intent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentsys.defense.failures import Failure
from agentsys.defense.intent import Intent

NOT_AVAILABLE = "Not Available"
"""A string leaf that starts with this stands for a value that the output does not hold."""


class GateRule(Enum):
    """How strictly a worker's reply is read."""

    SYNTACTIC = "syntactic"
    """Any JSON object passes, undeclared keys included."""
    SCHEMA = "schema"
    """Undeclared keys are dropped; every declared field must be there with its declared type."""


@dataclass(frozen=True)
class Accepted:
    """A return value that may enter the caller's context."""

    value: dict[str, Any]
    text: str
    """The value as JSON, written afresh: nothing of the reply around it, and no duplicate key, is left."""
    dropped: int = 0
    """How many undeclared keys were cut out."""


class _Mismatch(Exception):
    """The value does not have the declared shape."""


def admit(reply: str, intent: Intent, rule: GateRule) -> Accepted | Failure:
    """What a caller gets for a worker's final reply. Never raises.

    Args:
        reply: The worker's text, attacker-influenced.
        intent: The declared return value.
        rule: How strictly to read.

    Returns:
        The accepted value, or `INVALID_JSON` or `SCHEMA_MISMATCH`.
    """
    value = first_object(reply)
    if value is None:
        return Failure.INVALID_JSON
    dropped = 0
    if rule is GateRule.SCHEMA:
        try:
            value, dropped = conform(value, intent)
        except _Mismatch:
            return Failure.SCHEMA_MISMATCH
    text = _written(value)
    return Failure.INVALID_JSON if text is None else Accepted(value, text, dropped)


def first_object(text: str) -> dict[str, Any] | None:
    """The JSON object from the first `{` to its matching `}`; None if that is not a JSON object.

    For valid JSON the decoder stops exactly at the matching brace (it knows strings and escapes),
    and where the braces' content is not valid JSON both ways fail, so no scan of our own is needed.
    """
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _written(value: dict[str, Any]) -> str | None:
    # 1e999 decodes to infinity and "\ud800" to half a character: valid JSON that cannot be sent or stored.
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):
        return None
    return text


def conform(value: Mapping[str, Any], intent: Intent) -> tuple[dict[str, Any], int]:
    """The declared part of a value, and the number of undeclared keys left out.

    Raises:
        _Mismatch: If a declared field is missing or has another type.
    """
    kept: dict[str, Any] = {}
    dropped = len(value.keys() - intent.keys())
    for key, declared in intent.items():
        if key not in value:
            raise _Mismatch(key)
        kept[key], below = _conform_node(value[key], declared)
        dropped += below
    return kept, dropped


def _conform_node(value: Any, declared: Any) -> tuple[Any, int]:
    if isinstance(declared, str):
        if not _leaf_fits(value, declared):
            raise _Mismatch(declared)
        return value, 0
    if isinstance(declared, list):
        return _conform_list(value, declared[0])
    if not isinstance(value, dict):
        raise _Mismatch("object")
    return conform(value, declared)


def _conform_list(value: Any, declared: Any) -> tuple[list[Any], int]:
    if not isinstance(value, list):
        raise _Mismatch("list")
    pairs = [_conform_node(item, declared) for item in value]
    return [kept for kept, _ in pairs], sum(dropped for _, dropped in pairs)


def conforms(value: object, declared: object) -> bool:
    """Whether a value has exactly the declared shape: all declared keys, no other, right types."""
    if isinstance(declared, str):
        return _leaf_fits(value, declared)
    if isinstance(declared, list):
        return isinstance(value, list) and all(conforms(item, declared[0]) for item in value)
    if not isinstance(value, dict) or not isinstance(declared, Mapping):
        return False
    return value.keys() == declared.keys() and all(conforms(value[key], declared[key]) for key in declared)


def _leaf_fits(value: object, type_name: str) -> bool:
    if value is None or (isinstance(value, str) and value.startswith(NOT_AVAILABLE)):
        return True
    if type_name == "string":
        return isinstance(value, str)
    if type_name == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(value, int):
        return True
    return math.isfinite(value) and (type_name == "number" or value.is_integer())
