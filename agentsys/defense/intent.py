"""Intents: the return value an agent declares before it sees anything.

Grammar: an intent is an object. Its values are the type names `"string"`, `"number"`, `"integer"`
and `"boolean"`, objects of the same kind, or lists of exactly one such element. Field names are free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from agentdojo.functions_runtime import Function
from pydantic import BaseModel

from agentsys.defense.prompts import INTENT_PARAMETER
from agentsys.errors import ConfigError
from agentsys.models.chat import JsonSchema, ToolSpec
from agentsys.models.tools import tool_spec

Intent = Mapping[str, Any]
"""A value that `parse_intent` accepted."""

PARAMETER = "intent"
"""The name of the argument every tool gets in addition to its own."""

TYPE_NAMES = frozenset({"string", "number", "integer", "boolean"})

MAX_NESTING = 8
"""Deepest intent accepted. Ours; it only keeps hostile or broken declarations from recursing without end."""

# Like agentsys.models.tools: built once per tool, alive as long as the suite, so that provider adapters
# can recognise a tool list by the identity of its schemas.
_SCHEMAS: WeakKeyDictionary[type[BaseModel], JsonSchema] = WeakKeyDictionary()


def parse_intent(value: object) -> Intent | None:
    """The intent an agent declared, or None where it is missing or outside the grammar.

    Args:
        value: The argument as the model gave it. A string that holds a JSON object is read as that
            object: some models quote nested arguments.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) and _in_grammar(value, MAX_NESTING) else None


def _in_grammar(node: object, depth: int) -> bool:
    if isinstance(node, str):
        return node in TYPE_NAMES
    if depth == 0:
        return False
    if isinstance(node, dict):
        return all(isinstance(key, str) and _in_grammar(child, depth - 1) for key, child in node.items())
    return isinstance(node, list) and len(node) == 1 and _in_grammar(node[0], depth - 1)


def tools_with_intent(functions: Sequence[Function]) -> list[ToolSpec]:
    """What a model is told about these functions, each with the required argument `intent` added.

    Raises:
        ConfigError: If a tool has a parameter of that name itself.
    """
    return [_with_intent(function) for function in functions]


def _with_intent(function: Function) -> ToolSpec:
    plain = tool_spec(function)
    schema = _SCHEMAS.get(function.parameters)
    if schema is None:
        schema = _SCHEMAS[function.parameters] = _extended(plain)
    return ToolSpec(plain.name, plain.description, schema)


def _extended(spec: ToolSpec) -> JsonSchema:
    properties = spec.parameters.get("properties", {})
    if PARAMETER in properties:
        raise ConfigError(
            f"Tool '{spec.name}' has a parameter named '{PARAMETER}', which AgentSys adds to every tool;"
            " rename the tool's parameter to use this defense."
        )
    declared = {"type": "object", "description": INTENT_PARAMETER, "additionalProperties": True}
    return {
        **spec.parameters,
        "type": "object",
        "properties": {**properties, PARAMETER: declared},
        "required": [*spec.parameters.get("required", []), PARAMETER],
    }
