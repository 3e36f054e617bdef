"""`rewrite_descriptions`: what tools say of themselves, read and changed by a defense."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from agentdojo.functions_runtime import Function
from pydantic import create_model


class DescriptionText(NamedTuple):
    """One text that describes a tool."""

    tool: str
    parameter: str | None
    """The parameter that it describes; None: the tool itself."""
    text: str


def rewrite_descriptions(
    tools: Sequence[Function], read: Callable[[Sequence[DescriptionText]], Sequence[str]]
) -> list[Function]:
    """The tools under the texts that a reader leaves; a tool none of whose texts changes is the very same.

    Args:
        tools: The tools.
        read: Gives for all texts at once, in order, what stands in their places.
    """
    texts = [one for tool in tools for one in _list_texts(tool)]
    changed: dict[str, dict[str | None, str]] = {}
    for one, left in zip(texts, read(texts), strict=True):
        if left != one.text:
            changed.setdefault(one.tool, {})[one.parameter] = left
    return [_change_texts(tool, changed[tool.name]) if tool.name in changed else tool for tool in tools]


def _list_texts(tool: Function) -> list[DescriptionText]:
    fields = tool.parameters.model_fields.items()
    told = [
        DescriptionText(tool.name, name, field.description) for name, field in fields if field.description
    ]
    return [DescriptionText(tool.name, None, tool.description), *told]


def _change_texts(tool: Function, texts: Mapping[str | None, str]) -> Function:
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        if name is not None:
            field = copy(tool.parameters.model_fields[name])
            field.description = text
            fields[name] = (field.annotation, field)
    parameters = create_model(tool.parameters.__name__, __base__=tool.parameters, **fields)
    described = texts.get(None, tool.description)
    return tool.model_copy(update={"description": described, "parameters": parameters})
