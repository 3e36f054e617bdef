"""A plan's cases are made as they are asked for: in order, each once, and without room for all of them."""

from __future__ import annotations

import tracemalloc
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentsys.records.case import Case
from agentsys.runs.cell import Cell
from agentsys.runs.jobs import JobBlock, Jobs, TaskPair
from agentsys.runs.plan import Job, _drop_duplicates

PAIRS: tuple[TaskPair, ...] = tuple(
    product(("user_task_0", "user_task_1", "user_task_2"), ("injection_task_4",))
)


def cell(defense: str = "none", config_hash: str = "a") -> Cell:
    labels = {"model": "m", "defense": defense, "attack": "direct"}
    settings = SimpleNamespace(labels=labels, identity={"seed": 0}, seed=0)
    benchmark = SimpleNamespace(name="agentdojo", version="v1")
    return cast(Cell, SimpleNamespace(settings=settings, config_hash=config_hash, benchmark=benchmark))


def case(suite: str, user: str, epoch: int, defense: str = "none") -> Case:
    fields: dict[str, Any] = {"benchmark": "agentdojo", "version": "v1", "model": "m", "attack": "direct"}
    return Case(
        **fields,
        suite=suite,
        user_task_id=user,
        injection_task_id="injection_task_4",
        epoch=epoch,
        defense=defense,
    )


def test_cases_come_by_suite_then_epoch_then_pair() -> None:
    home = cell()
    jobs = Jobs([JobBlock(home, "slack", PAIRS, range(2)), JobBlock(home, "travel", PAIRS[:1], range(1))])
    users = [user for user, _ in PAIRS]
    wanted = [Job(case("slack", user, epoch), home) for epoch in range(2) for user in users]
    wanted.append(Job(case("travel", "user_task_0", 0), home))
    assert list(jobs) == wanted
    assert jobs == wanted
    assert [jobs[at] for at in range(len(jobs))] == wanted
    assert (jobs[-1], jobs[1:6:2]) == (wanted[-1], tuple(wanted[1:6:2]))
    assert list(reversed(jobs)) == wanted[::-1]
    with pytest.raises(IndexError):
        jobs[7]


def test_cases_alike_are_the_cases_in_order_as_a_plan_keeps_them() -> None:
    block = JobBlock(cell(), "slack", PAIRS, range(3))
    some = block.select(lambda job: (job.case.epoch, job.case.user_task_id[-1]) not in {(0, "0"), (1, "1")})
    for jobs in (Jobs([block, JobBlock(cell("agentsys"), "travel", PAIRS[:1], range(1))]), Jobs([some])):
        made = [
            one.model_copy(update={"user_task_id": user, "injection_task_id": injection})
            for one, pairs in jobs.plan_parts
            for user, injection in pairs
        ]
        assert made == [job.case for job in jobs]


def test_some_of_the_cases_keep_their_order_and_their_folders() -> None:
    block = JobBlock(cell(), "slack", PAIRS, range(3))
    some = block.select(lambda job: job.case.epoch != 1 and job.case.user_task_id != "user_task_1")
    assert [(job.case.epoch, job.case.user_task_id[-1]) for job in some] == [
        (epoch, user) for epoch in (0, 2) for user in "02"
    ]
    assert some.pipelines == ["m__none__agentdojo-v1", "m__none__agentdojo-v1__epoch2"]
    assert [job.case.epoch for job in some.select(lambda job: job.case.user_task_id == "user_task_2")] == [
        0,
        2,
    ]
    assert block.select(lambda job: True) is block
    assert not Jobs([block.select(lambda job: False)])


def test_other_cells_take_over_the_same_cases() -> None:
    old, new = cell(), cell("melon")
    jobs = Jobs([JobBlock(old, "slack", PAIRS, range(1))])
    assert [job.case.defense for job in jobs.replace_cells(lambda _: new)] == ["melon"] * 3
    assert jobs.cells == [old]
    assert jobs.of_cells(lambda one: one is new) == ()


def test_a_million_cases_take_no_room() -> None:
    pairs: tuple[TaskPair, ...] = tuple(product(map(str, range(100)), map(str, range(10))))
    tracemalloc.start()
    jobs = Jobs(_drop_duplicates([JobBlock(cell(str(n)), "slack", pairs, range(10)) for n in range(100)]))
    last = jobs[999_999]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(jobs), last.case.defense, last.case.epoch) == (1_000_000, "99", 9)
    assert peak < 5_000_000


def test_cases_that_would_share_a_record_are_planned_once() -> None:
    twice: tuple[TaskPair, ...] = (("my task", "g"), ("my_task", "g"), ("other", "g"))
    (block,) = _drop_duplicates([JobBlock(cell(), "slack", twice, range(2))])
    assert [(job.case.user_task_id, job.case.epoch) for job in block] == [
        (user, epoch) for epoch in range(2) for user in ("my task", "other")
    ]
    first, second = JobBlock(cell(), "slack", PAIRS[:2], range(2)), JobBlock(cell(), "slack", PAIRS, range(1))
    kept = Jobs(_drop_duplicates([first, second]))
    assert [(job.case.user_task_id[-1], job.case.epoch) for job in kept] == [
        ("0", 0), ("1", 0), ("0", 1), ("1", 1), ("2", 0),
    ]  # fmt: skip
