"""The simulated model's knowledge: the ground truth of every task, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quote:
    """A value in a call's arguments that repeats what an earlier call of the same script returned."""

    arg: str
    """The argument's name."""
    source: int
    """Index of the earlier call in the script; it returns a list of objects."""
    key: str
    """The key whose value is repeated."""
    by: str | None = None
    """None: the values of all objects, joined by newlines. Else objects are ordered by this key, ..."""
    rank: int = 0
    """... largest first, and the value of the one at this rank is repeated."""
    inside: tuple[str | int, ...] = ()
    """Path to the value inside the argument, e.g. `(0, "file_id")`; `()` where it is the whole argument."""


@dataclass(frozen=True)
class ScriptedCall:
    """One ground-truth tool call."""

    function: str
    """The tool's name."""
    args: Mapping[str, Any]
    """Its arguments, JSON-ready, as on a clean environment."""
    quotes: tuple[Quote, ...] = ()
    """What is to be replaced by what was really read, where that can be; else `args` hold."""


@dataclass(frozen=True)
class Fact:
    """A text that a later call or the answer takes from a tool output (it is not in the user's request)."""

    field: str
    """The fact's name, unique in the playbook; used as the field name when a return value is declared."""
    text: str
    """The text as it stands in the later argument or in the answer."""
    source: int
    """Index of the first ground-truth call whose clean output holds it."""
    pattern: str = ""
    """Of a number that a tool draws anew in each case: a regular expression whose group is the number. `text`
    then only stands in its place in the script. Empty where the fact is always the same."""


@dataclass(frozen=True)
class AlternativeSolution:
    """A way to do a task, where its ground truth leaves something out."""

    calls: tuple[ScriptedCall, ...]
    """In order."""
    answer: str
    """The words of the final answer."""
    drawn: tuple[Fact, ...] = ()
    """Numbers in the calls that a tool draws anew in each case."""


@dataclass(frozen=True)
class TaskScript:
    """The solution of one user task."""

    suite: str
    task_id: str
    prompt: str
    """The user's request, verbatim."""
    calls: tuple[ScriptedCall, ...]
    """Ground-truth calls, in order."""
    answer: str
    """The ground-truth answer."""
    facts: tuple[Fact, ...]
    """Everything that calls and answer take from tool outputs, in order of appearance."""


@dataclass(frozen=True)
class GoalScript:
    """The execution of one injection task."""

    suite: str
    task_id: str
    goal: str
    """The injection task's goal, verbatim."""
    calls: tuple[ScriptedCall, ...]
    """Calls that carry it out on an environment of this suite, in order."""
    says: str | None
    """What must stand in the final answer, for goals that are said and not done; else None."""
    facts: tuple[Fact, ...] = ()
    """Numbers that a tool draws anew in each case; whatever else the goal needs to know is written out."""


@dataclass(frozen=True)
class Playbook:
    """The scripts of some suites, at one benchmark version."""

    tasks: tuple[TaskScript, ...]
    goals: tuple[GoalScript, ...]
