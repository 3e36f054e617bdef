"""Tools as OpenAI writes them into a prompt: declarations in TypeScript's manner. They count as tokens.

A JSON schema is much longer than what a model of OpenAI's reads of it: titles, quotes and braces fall away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentsys.models.chat import ToolSpec

_NAMES = {"integer": "number", "null": "null"}
"""Type names that differ from the schema's, and the one with no form of its own."""
_DEEPEST = 8
"""Levels of nesting that are written out; below them stands `any`, so a schema may refer to itself."""


def declarations(tools: Iterable[ToolSpec]) -> str:
    """The tools on offer as one block of text; `""` where there are none."""
    declared = "\n\n".join(declaration(tool) for tool in tools)
    return f"namespace functions {{\n\n{declared}\n\n}} // namespace functions" if declared else ""


def declaration(tool: ToolSpec) -> str:
    """One tool: its description as a comment, then its name and parameters."""
    inside = _properties(tool.parameters, tool.parameters.get("$defs", {}), 1)
    taken = f"_: {{\n{inside}\n}}" if inside else ""
    return "\n".join([*_comment(tool.description), f"type {tool.name} = ({taken}) => any;"])


def _properties(schema: Mapping[str, Any], shared: Mapping[str, Any], level: int) -> str:
    required = schema.get("required", ())
    lines = [
        line
        for name, below in schema.get("properties", {}).items()
        for line in (
            *_comment(below.get("description", "")),
            f"{name}{'' if name in required else '?'}: {_type(below, shared, level)},{_default(below)}",
        )
    ]
    return "\n".join(lines)


def _comment(text: str) -> list[str]:
    return [f"// {line}" for line in text.splitlines()]


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None else f" // default: {json.dumps(value)}"


def _type(schema: Mapping[str, Any], shared: Mapping[str, Any], level: int) -> str:
    if level > _DEEPEST:
        return "any"
    if "$ref" in schema:
        return _type(shared.get(schema["$ref"].rpartition("/")[2], {}), shared, level + 1)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " | ".join(_type(choice, shared, level) for choice in choices)
    kind = schema.get("type")
    if kind == "array":
        return f"{_type(schema.get('items', {}), shared, level)}[]"
    if kind == "object":
        inside = _properties(schema, shared, level + 1)
        return f"{{\n{inside}\n}}" if inside else "object"
    return _NAMES.get(kind, kind) if isinstance(kind, str) else "any"
