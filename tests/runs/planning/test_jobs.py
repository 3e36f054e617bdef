"""A plan's cases: in order, each once, over the cells that they belong to."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import cast

from agentsys.runs.cell import Cell
from agentsys.runs.plan import drop_duplicates, list_cells, make_job


def cell(defense: str = "none", config_hash: str = "a") -> Cell:
    labels = {"model": "m", "defense": defense, "attack": "direct"}
    settings = SimpleNamespace(labels=labels, identity={"seed": 0}, seed=0)
    benchmark = SimpleNamespace(name="agentdojo", version="v1")
    return cast(Cell, SimpleNamespace(settings=settings, config_hash=config_hash, benchmark=benchmark))


def test_a_job_names_its_cell_and_its_folder() -> None:
    old, new = cell(), cell("melon")
    jobs = [make_job(one, "slack", ("user_task_0", None), epoch) for one in (old, new) for epoch in (0, 1)]
    assert list_cells(jobs) == [old, new]
    assert [job.labels for job in jobs[1:3]] == [("m", "none", "direct"), ("m", "melon", "direct")]
    assert [job.case.pipeline[-6:] for job in jobs[:2]] == ["ojo-v1", "epoch1"]


def test_cases_that_would_share_a_record_are_planned_once() -> None:
    one, twin = cell(), cell()
    wanted = product((one, twin), range(2), ("my task", "my_task", "other"))
    jobs = [make_job(some, "slack", (user, "g"), epoch) for some, epoch, user in wanted]
    assert [(job.case.user_task_id, job.case.epoch) for job in drop_duplicates(jobs)] == [
        (user, epoch) for epoch in range(2) for user in ("my task", "other")
    ]
