"""`Untrusted`: what came from a tool, and where it may be read.

An untrusted value has no text of its own: written out by slip it is a placeholder, and the type checker
refuses it where a text is wanted. A test lists every place that opens one, with its reader. Errors are values,
too: a kind out of a closed set, and untrusted words.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from pydantic import BaseModel

from agentsys.base.json_values import bound_value

_Content = TypeVar("_Content", covariant=True)


class Reader(Enum):
    """Who may look into an untrusted value."""

    GATE = "gate"
    """Code that decides which part of it crosses."""
    SANITIZER = "sanitizer"
    """The model that points at instructions, and the code that cuts them out."""
    QUARANTINE = "quarantine"
    """A model that reads it in a context of its own."""
    RECORD = "record"
    """What is stored of a case, or measured of it."""
    AGENT = "agent"
    """The agent of a defense that shows it results, in the one place where it does."""


@dataclass(frozen=True, repr=False)
class Untrusted(Generic[_Content]):
    """Something that a tool gave."""

    _content: _Content

    def open_for(self, reader: Reader) -> _Content:
        """The content, for one of the few that may read it."""
        return self._content

    def __repr__(self) -> str:
        return "<untrusted>"


TOOL_FAILED = "tool_failed"
"""The kind of an error that no class of this process names: a foreign tool's, or one in other words."""


class ForeignFunction(Function):  # type: ignore[misc]
    """A tool that somebody else runs: a client, or a server. Neither its errors nor its description are ours."""

    server: str = ""
    """The server that offers it; its descriptions speak about no other server's tools."""
    build_parameters: Callable[[Mapping[str, Any]], type[BaseModel]] | None = None
    """Makes the check of arguments by another schema of the tool, where there is one."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run it; an argument may be called `self`."""
        return self.run(*args, **kwargs)


def group_by_server(functions: Iterable[Function]) -> list[list[Function]]:
    """The tools of each server; those of this process are one group."""
    groups: dict[str | None, list[Function]] = {}
    for function in functions:
        server = function.server if isinstance(function, ForeignFunction) else None
        groups.setdefault(server, []).append(function)
    return list(groups.values())


@dataclass(frozen=True)
class ToolError:
    """Why a tool gave nothing."""

    kind: str
    """`TOOL_FAILED`, or the name of an exception's class that this process has."""
    message: Untrusted[str]
    """What the exception said; of a foreign tool, all that it said."""
    text: Untrusted[str]
    """Both, as AgentDojo writes errors: for records, and for who may read results."""


@dataclass(frozen=True)
class ToolOutcome:
    """Result of a call: a value or an error."""

    value: Untrusted[Any]
    error: ToolError | None = None


def call_tool(
    runtime: FunctionsRuntime, env: TaskEnvironment, tool: str, args: Mapping[str, Any]
) -> ToolOutcome:
    """Run a tool that the runtime has."""
    value, error = runtime.run_function(env, tool, args)
    return ToolOutcome(
        Untrusted(bound_value(value)), None if error is None else read_error(error, runtime.functions[tool])
    )


@runtime_checkable
class TriableRuntime(Protocol):
    """A runtime of a benchmark's tools, which change nothing but the environment."""

    def try_on_copy(self, env: TaskEnvironment) -> AbstractContextManager[TaskEnvironment]:
        """Give a copy of the environment; calls on it inside the block leave no mark on the case."""


def read_error(error: str, function: Function) -> ToolError:
    """An error as AgentDojo's runtime writes it, taken apart where the tool is of this process."""
    kind, _, message = error.partition(": ")
    if isinstance(function, ForeignFunction) or not _is_exception_here(kind, function):
        return ToolError(TOOL_FAILED, Untrusted(error), Untrusted(error))
    return ToolError(kind, Untrusted(message), Untrusted(error))


_RUNTIME_KINDS = {"ValidationError", "ToolNotFoundError"}
"""Classes of pydantic and AgentDojo whose errors every runtime gives."""


def _is_exception_here(name: str, function: Function) -> bool:
    """True if a name is Python's, or that of an exception in the tool's own module."""
    if name in _RUNTIME_KINDS:
        return True
    own = sys.modules.get(getattr(function.run, "__module__", ""))
    found = getattr(builtins, name, None) or getattr(own, name, None)
    return isinstance(found, type) and issubclass(found, Exception) and found.__name__ == name
