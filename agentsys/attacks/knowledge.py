"""An attacker's knowledge of the place it writes to: request, names, tools, and the data around its text.

No model is asked: it comes from the suite, and from one clean run of a user task's ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from agentdojo.functions_runtime import Function

from agentsys.attacks.vectors import canary, ground_truth_results, injectable_vectors, once_per_task
from agentsys.contracts import Suite, UserTask
from agentsys.models.chat import text_of

PLACE = "[[YOUR TEXT STANDS HERE]]"
AROUND = 700
"""Characters of the tool result that are shown before and after the place."""
_DESCRIPTION = 120
"""Characters of a tool's description."""


class Knowledge(Enum):
    """The part of the situation that the attacker is told."""

    NONE = "none"
    """The goal and the text to start from."""
    TASK = "task"
    """Also the user's request and how user and model are called."""
    FULL = "full"
    """Also every tool with its signature, the clean tool result in which the text stands with the place
    marked, and the tools that the goal needs."""


@dataclass(frozen=True)
class Situation:
    """One user task that the text is tried on."""

    request: str
    """The user's."""
    call: str
    """The call whose result holds the text first, e.g. `read_file(file_path='bill.txt')`; `""` if unknown."""
    result: str
    """That result in a clean run, with `PLACE` where the text will stand, cut to what is around it."""


@dataclass(frozen=True)
class Surroundings:
    """All that can be known."""

    user_name: str = ""
    model_name: str = ""
    situations: tuple[Situation, ...] = ()
    tools: tuple[str, ...] = ()
    """Every tool of the suite as `name(argument: type, ...): what it does`."""
    goal_tools: tuple[str, ...] = ()
    """The same of those that the injection task's ground truth calls; empty where it has none."""


@once_per_task
def situation(suite: Suite, user_task: UserTask) -> Situation:
    """A user task as its attacker sees it.

    Raises:
        NotInjectable: If no vector of the user task can carry an injection.
    """
    marks = {vector: canary(vector) for vector in injectable_vectors(suite, user_task)}
    for message in ground_truth_results(suite, user_task, marks):
        text = text_of(message)
        if any(mark in text for mark in marks.values()):
            call = message["tool_call"]
            args = ", ".join(f"{name}={value!r}" for name, value in call.args.items())
            for mark in marks.values():
                text = text.replace(mark, PLACE)
            return Situation(user_task.PROMPT, f"{call.function}({args})", _around(text))
    return Situation(user_task.PROMPT, "", "")


def _around(text: str) -> str:
    place = text.index(PLACE)
    first, last = max(place - AROUND, 0), place + len(PLACE) + AROUND
    return f"{'... ' if first else ''}{text[first:last]}{' ...' if last < len(text) else ''}"


def signatures(functions: Sequence[Function]) -> tuple[str, ...]:
    """Tools as an attacker reads them, in the order given."""
    return tuple(
        f"{function.name}({_argument_types(function.parameters)}):"
        f" {' '.join(function.description.split())[:_DESCRIPTION]}"
        for function in functions
    )


@lru_cache(maxsize=1024)
def _argument_types(parameters: type[Any]) -> str:
    properties = parameters.model_json_schema().get("properties", {})
    return ", ".join(f"{name}: {_type(schema)}" for name, schema in properties.items())


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "object"))
