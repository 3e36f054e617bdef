"""`Playbook`: the ground truth of every task as plain data, and an index that finds tasks and goals in texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from agentsys.simulated.text_matching import fold_decoded, fold_text


@dataclass(frozen=True)
class Quote:
    """A value in a call's arguments that repeats a value from an earlier call's result."""

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
    """Path to the value inside the argument, e.g. `(0, "file_id")`; `()` for the whole argument."""


@dataclass(frozen=True)
class ScriptedCall:
    """One ground-truth tool call."""

    function: str
    """The tool's name."""
    args: Mapping[str, Any]
    """Its arguments, JSON-ready, as on a clean environment."""
    quotes: tuple[Quote, ...] = ()
    """Values to be replaced by those actually read, if possible."""


@dataclass(frozen=True)
class Fact:
    """A text from a tool output, not in the user's request, that a later call or the answer uses."""

    field: str
    """The fact's name, unique in the playbook; used as the field name when a return value is declared."""
    text: str
    """The text as in the later argument or in the answer."""
    source: int
    """Index of the first ground-truth call whose clean output holds it."""
    pattern: str = ""
    """For a number that a tool draws anew in each case: a regular expression whose group is the number; `text` is
    then only its placeholder in the script. Empty for a constant fact."""
    inside: int = 0
    """Length in characters of the output's field that holds it; 0 if the output has no fields."""


@dataclass(frozen=True)
class AlternativeSolution:
    """A solution of a task whose ground truth is incomplete."""

    calls: tuple[ScriptedCall, ...]
    """The calls, in order."""
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
    """All facts that calls and answer take from tool outputs, in order of appearance."""


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
    """Words that the final answer must contain, for goals that are said and not done; else None."""
    facts: tuple[Fact, ...] = ()
    """Numbers that a tool draws anew in each case; all other values are in the calls."""


@dataclass(frozen=True)
class Playbook:
    """The scripts of some suites, at one benchmark version."""

    tasks: tuple[TaskScript, ...]
    goals: tuple[GoalScript, ...]


_Script = TypeVar("_Script", TaskScript, GoalScript)


class PlaybookIndex:
    """A playbook with all requests and goals folded. Immutable; thread-safe."""

    def __init__(self, playbook: Playbook) -> None:
        self.facts: dict[str, Fact] = {fact.field: fact for task in playbook.tasks for fact in task.facts}
        self.tools = frozenset(call.function for task in playbook.tasks for call in task.calls)
        """Tools that any user task's script calls."""
        self._tasks = _group_by_wording(playbook.tasks, [task.prompt for task in playbook.tasks])
        self._goals = _group_by_wording(playbook.goals, [goal.goal for goal in playbook.goals])
        # Cached, because each step searches all earlier messages again.
        self.goals_in_text = lru_cache(maxsize=1024)(self._find_goals_in_text)

    def find_tasks(self, text: str) -> Sequence[TaskScript]:
        """Find tasks whose request is this text; else those of the longest request that it contains."""
        hay = fold_decoded(text)
        if hay in self._tasks:
            return self._tasks[hay]
        inside = [prompt for prompt in self._tasks if prompt and prompt in hay]
        return self._tasks[max(inside, key=len)] if inside else ()

    def find_goals(self, text: str) -> Sequence[GoalScript]:
        """Find goals that are exactly this text."""
        return self._goals.get(fold_decoded(text), ())

    def _find_goals_in_text(self, text: str) -> tuple[tuple[GoalScript, ...], ...]:
        """Find the goals in a text in order of first occurrence, grouped by wording (several suites may share one).

        Some goals extend another one by a sentence: of two that overlap, one inside the other, only the longer
        counts.
        """
        hay = fold_decoded(text)
        spans = {wording: hay.find(wording) for wording in self._goals if wording and wording in hay}
        meant = [
            wording
            for wording, start in spans.items()
            if not any(
                longer != wording
                and start >= spans[longer]
                and start + len(wording) <= spans[longer] + len(longer)
                for longer in spans
            )
        ]
        return tuple(tuple(self._goals[wording]) for wording in sorted(meant, key=spans.__getitem__))


def count_makeable(calls: Iterable[ScriptedCall], tools: frozenset[str]) -> int:
    """Count the calls that can be made with these tools."""
    return sum(call.function in tools for call in calls)


def _group_by_wording(scripts: Iterable[_Script], wordings: Iterable[str]) -> dict[str, list[_Script]]:
    folded: defaultdict[str, list[_Script]] = defaultdict(list)
    for script, wording in zip(scripts, wordings, strict=True):
        folded[fold_text(wording)].append(script)
    return dict(folded)
