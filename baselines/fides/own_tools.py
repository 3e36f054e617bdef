"""The two tools that FIDES adds: asking the quarantined model, and looking at values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, create_model

from agentsys.models.chat import ToolSpec
from baselines.fides.prompts import INSPECT_TOOL, QUERY_TOOL

QUERY = "query_llm"
INSPECT = "inspect"
ANSWER = "answer"
_TYPES: Mapping[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "list": list[str],
}
"""Name of a type -> the type; `choice` and `record` need more."""
ANSWER_TYPES = (*_TYPES, "choice", "record")
_NAMES_SCHEMA = {"type": "array", "items": {"type": "string"}, "description": "names of variables"}
OWN_TOOL_SPECS: tuple[ToolSpec, ...] = (
    ToolSpec(
        QUERY,
        QUERY_TOOL,
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "the question"},
                "variables": _NAMES_SCHEMA,
                "output_type": {"type": "string", "enum": list(ANSWER_TYPES), "description": "type of the answer"},
                "choices": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "for `choice`: the answers that are possible",
                },
                "fields": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "for `record`: the names of its text fields",
                },
            },
            "required": ["query", "variables", "output_type"],
        },
    ),
    ToolSpec(
        INSPECT,
        INSPECT_TOOL,
        {"type": "object", "properties": {"variables": _NAMES_SCHEMA}, "required": ["variables"]},
    ),
)
"""As a model sees them."""


def build_answer_shape(args: Mapping[str, Any]) -> type[BaseModel] | None:
    """The shape of an answer of the declared type; None if the type cannot be read."""
    wanted = args.get("output_type")
    choices, fields = _read_names(args.get("choices")), _read_names(args.get("fields"))
    if wanted == "choice":
        kind: Any = Literal[tuple(choices)] if choices else None
    elif wanted == "record":
        usable = [name for name in fields if name.isidentifier() and not name.startswith(("_", "model_"))]
        known: dict[str, Any] = {name: (str, ...) for name in usable if not hasattr(BaseModel, name)}
        kind = create_model("Record", **known) if known else None
    else:
        kind = _TYPES.get(wanted) if isinstance(wanted, str) else None
    given: dict[str, Any] = {ANSWER: (kind, ...)}
    return None if kind is None else create_model("Answer", **given)


def read_variable_names(args: Mapping[str, Any]) -> list[str]:
    """The names in the argument `variables`, which models also give as one text."""
    given = args.get("variables")
    return [given] if isinstance(given, str) else _read_names(given)


def _read_names(given: Any) -> list[str]:
    return [item for item in given if isinstance(item, str)] if isinstance(given, list) else []
