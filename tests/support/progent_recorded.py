"""Progent's published runs, taken apart: what was called, what was refused and why, turn by turn."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

ARCHIVE = "agentdyn-gpt-4o-mini-2024-07-18-progent"
_REFUSED = "ValidationError: "
_NOT_ALLOWED = re.compile(r"The tool '(.*)' is not allowed\.")
_FAILED = re.compile(
    r"(?P<said>.*?)\n\nFailed validating (?P<keyword>'[^']*') in (?P<where>\w+)(?P<inside>.*?):\n"
    r"(?P<schema>.*)\n\nOn (?P<of>\w+)(?P<path>.*?):\n(?P<instance>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class RecordedResult:
    """One call and its answer."""

    tool: str
    args: dict[str, Any]
    content: str
    error: str | None
    query: str

    @property
    def cause(self) -> str | None:
        """Why it was refused, without the request that follows; None if it was not refused."""
        if self.error is None or not self.error.startswith(_REFUSED):
            return None
        found = re.fullmatch(rf"{_REFUSED}(.*)\. [^\n]*: {re.escape(self.query)}\.", self.error, re.DOTALL)
        return found[1] if found else None

    @property
    def tool_is_refused(self) -> bool:
        """Whether the tool was refused whatever its arguments are."""
        return _NOT_ALLOWED.fullmatch(self.cause or "") is not None


@dataclass(frozen=True)
class RecordedTask:
    """One run: its turns with calls, in order."""

    name: str
    query: str
    turns: tuple[tuple[RecordedResult, ...], ...]


def tasks_in(folder: Path) -> list[RecordedTask]:
    """The runs of a folder, in order."""
    paths = sorted(folder.rglob("*.json"))
    return [_task(str(path.relative_to(folder)), orjson.loads(path.read_bytes())) for path in paths]


def _task(name: str, stored: dict[str, Any]) -> RecordedTask:
    messages = stored["messages"]
    query = next(message["content"] for message in messages if message["role"] == "user")
    turns: list[list[RecordedResult]] = []
    for message in messages:
        if message["role"] == "assistant":
            turns.append([])
        elif message["role"] == "tool":
            call = message["tool_call"]
            result = RecordedResult(
                call["function"], call["args"], message["content"], message["error"], query
            )
            turns[-1].append(result)
    return RecordedTask(name, query, tuple(tuple(turn) for turn in turns if turn))


@dataclass(frozen=True)
class FailedCondition:
    """A refusal for an argument: the condition and the value, as far as the text holds them."""

    cause: str
    argument: str
    value: Any
    schema: Any


def failed_condition(result: RecordedResult, defaults: Sequence[str] = ()) -> FailedCondition | None:
    """The condition that a call failed; None where the text does not hold all of it.

    Args:
        result: A refused call.
        defaults: Arguments of the tool that the call may have left out: their value is None.
    """
    found = _FAILED.fullmatch(result.cause or "")
    if found is None:
        return None
    try:
        schema, instance = (ast.literal_eval(found[part].strip()) for part in ("schema", "instance"))
    except (ValueError, SyntaxError):
        return None
    if found["where"] == "metaschema":
        # A schema that is none: what was on show is the place of it named in the path.
        schema, value = _put_into({}, found["path"], instance), None
        return FailedCondition(result.cause or "", "", value, schema)
    schema = _put_into({}, found["inside"], schema) if found["inside"] else schema
    given = {**dict.fromkeys(defaults), **result.args}
    for argument, value in given.items():
        if _at(value, found["path"]) == instance:
            # The tool's own type, where there is no way down to it: 20 is 20.0 to it.
            checked = value if found["path"] else instance
            return FailedCondition(result.cause or "", argument, checked, schema)
    return None


def _steps(path: str) -> list[Any]:
    return [ast.literal_eval(step) for step in re.findall(r"\[([^\[\]]*)\]", path)]


def _put_into(outer: dict[str, Any], path: str, inner: Any) -> Any:
    """The schema in which `inner` stands at this path."""
    for step in reversed(_steps(path)):
        inner = {step: inner} if isinstance(step, str) else [*[{}] * step, inner]
    return inner


def _at(value: Any, path: str) -> Any:
    for step in _steps(path):
        try:
            value = value[step]
        except (TypeError, KeyError, IndexError):
            return None
    return value


def refusals(tasks: Sequence[RecordedTask]) -> Iterator[RecordedResult]:
    """Every refused call."""
    for task in tasks:
        for turn in task.turns:
            yield from (result for result in turn if result.cause is not None)
