"""`PlaybookIndex`: finds a playbook's requests, goals and facts in text, quickly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from threading import Lock
from typing import TypeVar

from agentsys.models.simulated.playbook import Fact, GoalScript, Playbook, ScriptedCall, TaskScript
from agentsys.models.simulated.text_matching import fold_text, fold_decoded

_Script = TypeVar("_Script", TaskScript, GoalScript)


class LazyPlaybookIndex:
    """A playbook's index that is made when it is first asked for: a finished run never needs it.

    Args:
        playbook: Makes the playbook; called once.
    """

    def __init__(self, playbook: Callable[[], Playbook]) -> None:
        self._playbook = playbook
        self._made: PlaybookIndex | None = None
        self._lock = Lock()

    def __call__(self) -> PlaybookIndex:
        """The index; threads that ask meanwhile wait for it."""
        if self._made is None:
            with self._lock:
                self._made = self._made or PlaybookIndex(self._playbook())
        return self._made


class PlaybookIndex:
    """A playbook with every request and goal folded once. Never changes; safe for many threads."""

    def __init__(self, playbook: Playbook) -> None:
        self.playbook = playbook
        self.facts: dict[str, Fact] = {fact.field: fact for task in playbook.tasks for fact in task.facts}
        self._tasks = _group_by_wording(playbook.tasks, [task.prompt for task in playbook.tasks])
        self._goals = _group_by_wording(playbook.goals, [goal.goal for goal in playbook.goals])
        # A step looks at all earlier messages again: what stands in a text is worked out once.
        self.goals_in_text = lru_cache(maxsize=1024)(self._find_goals_in_text)

    def find_tasks(self, text: str) -> Sequence[TaskScript]:
        """Tasks whose request is this text; else those of the longest request that stands in it."""
        hay = fold_decoded(text)
        if hay in self._tasks:
            return self._tasks[hay]
        inside = [prompt for prompt in self._tasks if prompt and prompt in hay]
        return self._tasks[max(inside, key=len)] if inside else ()

    def find_goals(self, text: str) -> Sequence[GoalScript]:
        """Goals that are exactly this text."""
        return self._goals.get(fold_decoded(text), ())

    def _find_goals_in_text(self, text: str) -> tuple[tuple[GoalScript, ...], ...]:
        """Goals in the order they first stand in the text; those of one wording (in several suites) together.

        Several goals are another one with a sentence added: of two that begin at one place, or of
        which one lies in the other, only the longer was meant.
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
