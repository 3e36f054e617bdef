"""FIDES' prompts, and the specifications of the planner's own two tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, create_model

from agentsys.models.chat import ToolSpec
from agentsys.models.pipeline_elements import choose_free_name

PLANNER = """\
Results of tools may hold names of variables, such as #read_note-result-0.text#. A variable stands for a \
value that you have not seen because it may come from anybody.
- Wherever the value is needed in a call, write the variable's name with its signs; it is replaced when the \
call runs.
- In your final answer, write the name where the user shall see the value.
- To find something out about values, or to take something out of them, call {query} with the question, the \
names and the type of the answer. The answer becomes a new variable.
- {inspect} shows you values. Use it only where nothing else helps: later calls may be refused because of \
it.
- Never guess a value, and do not make up names of variables."""
"""Added to the suite's system message."""

VARIABLES_ONLY = """\
Results of tools are names of variables, such as #read_note-result-0.text#. A variable stands for a value \
that you do not see.
- Wherever the value is needed in a call, write the variable's name with its signs; it is replaced when the \
call runs.
- In your final answer, write the name where the user shall see the value.
- Never guess a value, and do not make up names of variables."""
"""The same for variants that show only variables."""

QUARANTINED = """\
You answer a question about the texts that come with it. Take the answer from the texts alone and make \
nothing up."""
"""Task of the quarantined model."""

REFUSED = "The call of {tool} was refused. {reason}. Nothing has happened."
"""Result of a refused call: rules and names of arguments, no value."""

NO_ANSWER = "There was no answer of this type."
"""Result of a question that the quarantined model did not answer with the declared type."""

UNKNOWN = "There is no variable of this name: give names as they stand in results."
"""Result of asking about, or inspecting, an unknown variable."""

BAD_TYPE = "The type is unknown. Known: {known}."
"""Result of a question with a type that cannot be read."""

QUERY_TOOL = """\
Ask an assistant that sees nothing but your question and the values of the variables you name. The answer is \
stored in a new variable."""
"""Description of the tool that asks."""

INSPECT_TOOL = "Show the values of variables. Later calls may be refused because of it."
"""Description of the tool that shows."""

PROMPTS = {
    "planner": PLANNER,
    "variables_only": VARIABLES_ONLY,
    "refused": REFUSED,
    "no_answer": NO_ANSWER,
    "unknown_variable": UNKNOWN,
    "bad_type": BAD_TYPE,
    "query_tool": QUERY_TOOL,
    "inspect_tool": INSPECT_TOOL,
}
"""Prompts outside contracts, by name, for `agentsys show prompts`."""


QUERY = "query_llm"
INSPECT = "inspect"
ANSWER = "answer"
_TYPES: dict[str, Any] = {"boolean": bool, "integer": int, "number": float, "string": str, "list": list[str]}
"""Name of a type -> the type; `choice` and `record` need more."""
ANSWER_TYPES = (*_TYPES, "choice", "record")


def _make_text_list_schema(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


OWN_TOOL_SPECS: tuple[ToolSpec, ...] = (
    ToolSpec(
        QUERY,
        QUERY_TOOL,
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "the question"},
                "variables": _make_text_list_schema("names of variables"),
                "output_type": {
                    "type": "string",
                    "enum": list(ANSWER_TYPES),
                    "description": "type of the answer",
                },
                "choices": _make_text_list_schema("for `choice`: the answers that are possible"),
                "fields": _make_text_list_schema("for `record`: the names of its text fields"),
            },
            "required": ["query", "variables", "output_type"],
        },
    ),
    ToolSpec(
        INSPECT,
        INSPECT_TOOL,
        {
            "type": "object",
            "properties": {"variables": _make_text_list_schema("names of variables")},
            "required": ["variables"],
        },
    ),
)
"""The two tools as a model sees them."""


def name_own_tools(taken: Collection[str]) -> tuple[ToolSpec, ...]:
    """Return the planner's own two tools, renamed if the name is taken."""
    return tuple(replace(tool, name=choose_free_name(tool.name, taken)) for tool in OWN_TOOL_SPECS)


def build_answer_shape(args: Mapping[str, Any]) -> type[BaseModel] | None:
    """Build the model class of the declared answer type; None if the type cannot be read."""
    wanted = args.get("output_type")
    choices, fields = _read_names(args.get("choices")), _read_names(args.get("fields"))
    if wanted == "choice":
        kind: Any = Literal[tuple(choices)] if choices else None
    elif wanted == "record":
        usable = [name for name in fields if name.isidentifier() and not name.startswith(("_", "model_"))]
        texts: dict[str, Any] = {name: (str, ...) for name in usable if not hasattr(BaseModel, name)}
        kind = create_model("Record", **texts) if texts else None
    else:
        kind = _TYPES.get(wanted) if isinstance(wanted, str) else None
    shape: dict[str, Any] = {ANSWER: (kind, ...)}
    return None if kind is None else create_model("Answer", **shape)


def read_variable_names(args: Mapping[str, Any]) -> list[str]:
    """Read the names in the argument `variables`, which models also pass as one string."""
    names = args.get("variables")
    return [names] if isinstance(names, str) else _read_names(names)


def _read_names(names: Any) -> list[str]:
    return [item for item in names if isinstance(item, str)] if isinstance(names, list) else []
