"""An attacker's knowledge of its case: request, names, tools, and the data around its text.

It comes from the suite, and from one clean run of a user task's ground truth; no model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from agentdojo.functions_runtime import Function

from agentsys.attacks.injection_vectors import (
    cache_per_task,
    find_injectable_vectors,
    make_canary,
    run_ground_truth,
)
from agentsys.contracts import Suite, UserTask
from agentsys.models.chat import text_of

TEXT_PLACEHOLDER = "[[YOUR TEXT STANDS HERE]]"
CONTEXT_CHARS = 700
"""Characters of the tool result shown before and after the attacker's text."""
_DESCRIPTION_CHARS = 120
"""Most characters of a tool's description."""


class KnowledgeLevel(Enum):
    """The part of the case that the attacker is told."""

    NONE = "none"
    """The goal and the text to start from."""
    TASK = "task"
    """Also the user's request and the names of user and model."""
    FULL = "full"
    """Also every tool's signature, the clean tool result with a mark in place of the text, and the tools that the
    goal needs."""


@dataclass(frozen=True)
class Situation:
    """One user task that the text is tried on."""

    request: str
    """The user's request."""
    call: str
    """The first call whose result holds the text, e.g. `read_file(file_path='bill.txt')`; `""` if unknown."""
    result: str
    """The surroundings of the text in that result, in a clean run, with `TEXT_PLACEHOLDER` in place of the text."""


@dataclass(frozen=True)
class CaseKnowledge:
    """Everything that an attacker may know about a case."""

    user_name: str = ""
    model_name: str = ""
    situations: tuple[Situation, ...] = ()
    tools: tuple[str, ...] = ()
    """Every tool of the suite as `name(argument: type, ...): what it does`."""
    goal_tools: tuple[str, ...] = ()
    """The same for tools that the injection task's ground truth calls; empty if it has none."""


@cache_per_task
def describe_situation(suite: Suite, user_task: UserTask) -> Situation:
    """Describe a user task for the attacker.

    Raises:
        NotInjectable: If no vector of the user task can carry an injection.
    """
    marks = {vector: make_canary(vector) for vector in find_injectable_vectors(suite, user_task)}
    for message in run_ground_truth(suite, user_task, marks):
        text = text_of(message)
        if any(mark in text for mark in marks.values()):
            call = message["tool_call"]
            args = ", ".join(f"{name}={value!r}" for name, value in call.args.items())
            for mark in marks.values():
                text = text.replace(mark, TEXT_PLACEHOLDER)
            return Situation(user_task.PROMPT, f"{call.function}({args})", _cut_context(text))
    return Situation(user_task.PROMPT, "", "")


def _cut_context(text: str) -> str:
    start = text.index(TEXT_PLACEHOLDER)
    first, last = max(start - CONTEXT_CHARS, 0), start + len(TEXT_PLACEHOLDER) + CONTEXT_CHARS
    return f"{'... ' if first else ''}{text[first:last]}{' ...' if last < len(text) else ''}"


def list_signatures(functions: Sequence[Function]) -> tuple[str, ...]:
    """Format tools for the attacker, in the order given."""
    return tuple(
        f"{function.name}({_format_argument_types(function.parameters)}):"
        f" {' '.join(function.description.split())[:_DESCRIPTION_CHARS]}"
        for function in functions
    )


@lru_cache(maxsize=1024)
def _format_argument_types(parameters: type[Any]) -> str:
    properties = parameters.model_json_schema().get("properties", {})
    return ", ".join(f"{name}: {_format_type(schema)}" for name, schema in properties.items())


def _format_type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_format_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_format_type(schema.get('items', {}))}"
    return str(schema.get("type", "object"))
