"""`RunOrder`: in which order the cases of a plan are begun."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from agentsys.records.case import Case
from agentsys.runs.planning.jobs import Job

DurationKey: TypeAlias = tuple[str | None, ...]
_LAST_PER_WORKER = 8
"""Cases for each worker, at the end of a plan, that are not begun in its order."""


class RunOrder(Iterator[Job]):
    """Gives out a plan's cases in order, but of the last ones those first that are expected to take longest.

    Who begins a long case last keeps all other workers waiting. 64 of them that did nothing but wait for
    their model would stand idle for 7% of the time that AgentDojo's 949 attacked cases take in the plan's
    order, and for 2% of it in this one. What cases take is learned from those that ended.

    Args:
        jobs: The cases.
        workers: Cases under way at once. One has nobody to wait for, and takes all of them in order.
    """

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        in_order = len(jobs) if workers == 1 else max(0, len(jobs) - _LAST_PER_WORKER * workers)
        self._in_order = islice(jobs, in_order)
        self._last = (jobs[place] for place in range(len(jobs) - 1, in_order - 1, -1))
        self._left: list[Job] = []
        self._seconds = _CaseDurations()
        self._every, self._to_go = max(1, workers // 4), 0

    def __next__(self) -> Job:
        job = next(self._in_order, None) or self._pop_longest()
        self._seconds.mark_begun(job.case)
        return job

    def learn_duration(self, case: Case, seconds: float) -> None:
        """Learn from a case that took so long."""
        self._seconds.add(case, seconds)

    def _pop_longest(self) -> Job:
        self._left.extend(self._last)
        if not self._left:
            raise StopIteration
        if not self._to_go:  # not for each case: what is known changes little from one to the next
            self._sort()
            self._to_go = self._every
        self._to_go -= 1
        return self._left.pop()

    def _sort(self) -> None:
        """Put the longest last, as cases are taken from there; behind them one of each unknown user task."""
        firsts = set(map(id, self._seconds.first_of_unknown_tasks(self._left)))
        expected = self._seconds.expected_seconds
        self._left.sort(key=lambda job: math.inf if id(job) in firsts else expected(job.case))


class _CaseDurations:
    """What cases took: with each injection task, and how much more or less that was for each user task.

    Not what each user task took: the first that ended of one may have been with a short injection task.
    """

    def __init__(self) -> None:
        self._took: defaultdict[DurationKey, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._begun: set[DurationKey] = set()

    def mark_begun(self, case: Case) -> None:
        """Note that a case of its user task is under way."""
        self._begun.add(_duration_keys(case)[1])

    def first_of_unknown_tasks(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Of each user task that no case was begun of the last one."""
        by_task = {_duration_keys(job.case)[1]: job for job in jobs}
        return (job for key, job in by_task.items() if key not in self._begun)

    def add(self, case: Case, seconds: float) -> None:
        """Learn what a case took."""
        suite, user_task, injection_task = _duration_keys(case)
        self._add_seconds(suite, seconds)
        self._add_seconds(injection_task, seconds)
        self._add_seconds(user_task, seconds - self._mean(injection_task, seconds))

    def expected_seconds(self, case: Case) -> float:
        """Seconds that a case will take, as far as is known; 0 where nothing is."""
        suite, user_task, injection_task = _duration_keys(case)
        return self._mean(injection_task, self._mean(suite, 0.0)) + self._mean(user_task, 0.0)

    def _add_seconds(self, key: DurationKey, seconds: float) -> None:
        took = self._took[key]
        took[0] += seconds
        took[1] += 1.0

    def _mean(self, key: DurationKey, unknown: float) -> float:
        total, number = self._took.get(key, (unknown, 1.0))
        return total / number


def _duration_keys(case: Case) -> tuple[DurationKey, DurationKey, DurationKey]:
    suite = case.model, case.defense, case.attack, case.suite
    return suite, (*suite, "user task", case.user_task_id), (*suite, "injection task", case.injection_task_id)
