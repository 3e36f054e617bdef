"""Tool specifications of AgentDojo functions, with the JSON schema built once per tool."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from agentdojo.functions_runtime import Function
from pydantic import BaseModel

from agentsys.models.chat import JsonSchema, ToolSpec

# Building a schema takes pydantic 0.2 ms; stock AgentDojo builds all of them on each model call,
# 5 ms for Workspace. The parameters class is made once per tool and lives as long as the suite.
_SCHEMAS: WeakKeyDictionary[type[BaseModel], JsonSchema] = WeakKeyDictionary()


def tool_spec(function: Function) -> ToolSpec:
    """Describe one function as a model is told about it."""
    schema = _SCHEMAS.get(function.parameters)
    if schema is None:
        schema = _SCHEMAS[function.parameters] = function.parameters.model_json_schema()
    return ToolSpec(function.name, function.description, schema)


def tool_specs(functions: Iterable[Function]) -> list[ToolSpec]:
    """Describe these functions as a model is told about them, in order."""
    return [tool_spec(function) for function in functions]
