"""What the planner is told of tools and classes, and the values that stand for them in its programs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, get_args

from agentdojo.functions_runtime import Function
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from baselines.camel.language.machine import ToolValue
from baselines.flow.label import FROM_USER

QUERY = "query_ai_assistant"
"""The quarantined model, as a function."""


def build_tool_values(functions: Iterable[Function]) -> dict[str, ToolValue]:
    """Every tool by name, with the quarantined model."""
    found = {one.name: ToolValue(FROM_USER, one.name, tuple(one.parameters.model_fields)) for one in functions}
    found[QUERY] = ToolValue(FROM_USER, QUERY, ("query", "output_schema"), reads=True)
    return found


def find_result_types(functions: Iterable[Function]) -> list[type]:
    """Pydantic classes and enumerations that stand in what tools return or take, each once."""
    found: dict[str, type] = {}
    for function in functions:
        fields = function.parameters.model_fields.values()
        for annotation in (function.return_type, *(field.annotation for field in fields)):
            for one in _find_types_in(annotation, set()):
                found.setdefault(one.__name__, one)
    return list(found.values())


def _find_types_in(annotation: Any, seen: set[type]) -> Iterator[type]:
    for inside in get_args(annotation):
        yield from _find_types_in(inside, seen)
    if not isinstance(annotation, type) or annotation in seen:
        return
    seen.add(annotation)
    if issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _find_types_in(field.annotation, seen)
    elif issubclass(annotation, Enum):
        yield annotation


def write_signature(function: Function) -> str:
    """A tool as a Python function with its description."""
    given = [
        f"{name}: {_write_annotation(field.annotation)}{_write_default(field.default)}"
        for name, field in function.parameters.model_fields.items()
    ]
    described = [
        f"    {name}: {field.description}"
        for name, field in function.parameters.model_fields.items()
        if field.description
    ]
    lines = [f'    """{function.description.strip()}', *described, '    """']
    return "\n".join(
        [f"def {function.name}({', '.join(given)}) -> {_write_annotation(function.return_type)}:", *lines]
    )


def write_class(of: type) -> str:
    """A class as its definition."""
    if issubclass(of, Enum):
        return "\n".join([f"class {of.__name__}(Enum):", *(f"    {m.name} = {m.value!r}" for m in of)])
    fields: Mapping[str, Any] = getattr(of, "model_fields", {})
    lines = [f"    {name}: {_write_annotation(field.annotation)}" for name, field in fields.items()]
    return "\n".join([f"class {of.__name__}(BaseModel):", *lines])


_MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")


def _write_annotation(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    return _MODULES.sub("", inspect.formatannotation(annotation))


def _write_default(value: Any) -> str:
    return "" if value is PydanticUndefined else f" = {value!r}"
