"""AgentDojo's functions as models are told of them, and arguments as its executor hands them on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from agentdojo.functions_runtime import Function
from pydantic import BaseModel

from agentsys.models.chat import ToolSpec
from agentsys.python_parser import literal_eval

# Building a schema takes pydantic 0.2 ms; stock AgentDojo builds all of them on each model call,
# 5 ms for Workspace. The parameters class is made once per tool and lives as long as the suite.
_SPECS: WeakKeyDictionary[type[BaseModel], ToolSpec] = WeakKeyDictionary()


def describe_tool(function: Function) -> ToolSpec:
    """Describe one function as a model is told about it."""
    spec = _SPECS.get(function.parameters)
    if spec is None:
        spec = ToolSpec(function.name, function.description, function.parameters.model_json_schema())
        _SPECS[function.parameters] = spec
    if (spec.name, spec.description) == (function.name, function.description):
        return spec
    return replace(spec, name=function.name, description=function.description)


def tool_specs(functions: Iterable[Function]) -> list[ToolSpec]:
    """Describe these functions as a model is told about them, in order."""
    return [describe_tool(function) for function in functions]


def normalize_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as AgentDojo's executor hands them on: a text that spells a list becomes the list."""
    return {name: parse_list_text(value) if isinstance(value, str) else value for name, value in args.items()}


def parse_list_text(text: str) -> object:
    """The list that a text spells, or the text."""
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text  # of brackets without end, too, on which AgentDojo would have stopped the run
    return value if isinstance(value, list) else text


_READING_VERBS = ("get", "search", "list", "read", "check", "find", "view", "count", "show", "lookup")


def has_reading_name(tool: str, *more: str) -> bool:
    """Whether a tool's name begins with a verb of reading, or one more: a guess where nobody has said it."""
    return tool.casefold().split("_")[0] in (*_READING_VERBS, *more)
