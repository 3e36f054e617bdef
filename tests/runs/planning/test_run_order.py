"""Cases are begun in the plan's order, and of the last ones the longest first; each once."""

from __future__ import annotations

import heapq
from itertools import islice, pairwise, product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentsys.records.case import Case
from agentsys.runs.cell import Cell
from agentsys.runs.plan import Job
from agentsys.runs.run_control import RunOrder


def jobs(users: int, injections: int = 10) -> list[Job]:
    cell = cast(Cell, SimpleNamespace())
    pairs = product(range(users), range(injections))
    return [Job(Case(**_FIELDS, user_task_id=f"u{u}", injection_task_id=f"i{i}"), cell) for u, i in pairs]


_FIELDS: dict[str, Any] = {
    "benchmark": "agentdojo",
    "version": "v1",
    "suite": "slack",
    "attack": "direct",
    "model": "m",
    "defense": "none",
}


def seconds(job: Job) -> float:
    """Later tasks take longer: the plan's order is the worst there is."""
    return float(int(job.case.user_task_id[1:])) + 3.0 * int((job.case.injection_task_id or "i0")[1:])


def played(plan: list[Job], workers: int, order: RunOrder | None = None) -> tuple[list[Job], float]:
    """The cases as they were begun, and when the last one ended; None: in the plan's order."""
    taken, now, begun = iter(plan) if order is None else order, 0.0, list[Job]()
    under_way = list[tuple[float, int]]()
    while True:
        while len(under_way) < workers and (job := next(taken, None)) is not None:
            heapq.heappush(under_way, (now + seconds(job), len(begun)))
            begun.append(job)
        if not under_way:
            return begun, now
        now, place = heapq.heappop(under_way)
        if order is not None:
            order.learn_duration(begun[place].case, seconds(begun[place]))


@pytest.mark.parametrize("workers", [1, 2, 7, 64, 1024])
@pytest.mark.parametrize("users", [0, 1, 30])
def test_each_case_is_begun_once(workers: int, users: int) -> None:
    plan = jobs(users)
    begun, _ = played(plan, workers, RunOrder(plan, workers))
    assert sorted(job.case.key for job in begun) == sorted(job.case.key for job in plan)


def test_of_tasks_that_nothing_is_known_of_one_case_each_is_begun_first() -> None:
    plan = jobs(8)
    first = [job.case.user_task_id for job, _ in zip(RunOrder(plan, 32), range(8), strict=False)]
    assert first == [f"u{number}" for number in range(8)]


def test_a_task_is_not_taken_for_short_by_its_first_case_with_a_short_injection_task() -> None:
    plan = jobs(20)
    order = RunOrder(plan, 8)
    for job in islice(order, 20 * 10 - 8 * 8):
        order.learn_duration(job.case, seconds(job))
    first_of_unknown = list(islice(order, 6))
    assert {job.case.injection_task_id for job in first_of_unknown} == {"i0"}
    for job in first_of_unknown:
        order.learn_duration(job.case, seconds(job))
    left = [seconds(job) for job in order]
    assert all(later - earlier < 4.0 for earlier, later in pairwise(left))
