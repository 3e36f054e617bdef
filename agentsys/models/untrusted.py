"""`Untrusted`: what came from a tool, and where it may be read.

An untrusted value has no text of its own: written out by slip it is a placeholder, and the type checker
refuses it where a text is wanted. A test lists every place that opens one, with its reader. Errors are values,
too: a kind out of a closed set, and untrusted words.

`UserRequest`: tells the words of the user's request from words that a tool's output may have brought.

A validator is shown only words of the request and values of a closed format (a date, a number, an address): no
sentence fits into those.
"""

from __future__ import annotations

import builtins
import datetime
import re
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
    kind = getattr(builtins, name, None) or getattr(own, name, None)
    return isinstance(kind, type) and issubclass(kind, Exception) and kind.__name__ == name


_MAIL = r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}"
_IBAN = r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{10,30}"
_PAGE = r"(?:https?://)?(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,10}(?:/[\w.~%-]{0,40}){0,4}"
_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?"
_NUMBER = r"[+-]?\d{1,15}(?:\.\d{1,15})?"
_ID = r"\w{1,40}"

WORDLESS = re.compile("|".join((_DATE, _NUMBER)))
"""A date, a time or a number, which cannot be read as words."""
_CLOSED = re.compile("|".join((_MAIL, _IBAN, _PAGE, _DATE, _NUMBER, _ID)))
_SHORT_OR_ANY_CASE = re.compile("|".join((_MAIL, _NUMBER)))
_MIN_CHARS = 3
"""Shorter texts occur in any request by chance."""


def has_closed_format(leaf: object) -> bool:
    """True for a number, a date, null, an enumeration's member or a string of a closed format."""
    if leaf is None or isinstance(leaf, bool | int | float | datetime.date | datetime.time | Enum):
        return True
    return isinstance(leaf, str) and _CLOSED.fullmatch(leaf) is not None


_STATUS_FIELD = "status"
"""The field that acting calls declare; the prompts name it."""


class UserRequest:
    """The user's request, used to mask the words of a worker that it does not contain."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded, self._words = _fold_words(text), " ".join(text.split())

    def contains(self, text: str) -> bool:
        """True if the request contains the text as whole words, ignoring case and white space."""
        return _stands_in(_fold_words(text), self._folded)

    def says(self, leaf: object) -> bool:
        """True if the request contains a leaf as whole words, in the same case, with at least three characters.

        Numbers and mail addresses may be shorter, or written in another case.
        """
        text = str(leaf)
        if _SHORT_OR_ANY_CASE.fullmatch(text):
            return self.contains(text)
        wanted = " ".join(text.split())
        return len(wanted) >= _MIN_CHARS and _stands_in(wanted, self._words)

    def mask_value(self, value: Any) -> Any:
        """Replace the strings of a value that are not in the request; dates and numbers stay."""
        if isinstance(value, Mapping):
            return {
                key if self.contains(str(key)) else f"key_{number}": self.mask_value(child)
                for number, (key, child) in enumerate(value.items(), 1)
            }
        if isinstance(value, list | tuple | set):
            return [self.mask_value(item) for item in value]
        if value is None or isinstance(value, bool | int | float | datetime.date):
            return value
        text = str(value)
        if WORDLESS.fullmatch(text) or self.contains(text):
            return text
        return f"<text that is not in the request, {len(text)} characters>"

    def mask_fields(self, node: Any) -> Any:
        """Replace the field names of an intent whose words are not in the request."""
        if isinstance(node, Mapping):
            return {
                key
                if key == _STATUS_FIELD or self.contains(key.replace("_", " "))
                else f"field_{number}": self.mask_fields(child)
                for number, (key, child) in enumerate(node.items(), 1)
            }
        return [self.mask_fields(item) for item in node] if isinstance(node, list) else node


def _fold_words(text: str) -> str:
    return " ".join(text.casefold().split())


def _stands_in(wanted: str, text: str) -> bool:
    """True if `text` contains `wanted` between word boundaries."""
    # No regular expression: both texts may be hostile, and compiling one of 500 kB takes a second.
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        splits_word = (wanted[:1].isalnum() and _is_in_word(text[at - 1 : at])) or (
            wanted[-1:].isalnum() and _is_in_word(text[end : end + 1])
        )
        if not splits_word:
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_in_word(character: str) -> bool:
    return character.isalnum() or character == "_"
