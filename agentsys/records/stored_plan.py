"""`StoredPlan`: the cases planned into a log folder, kept there so that readers can name what is missing.

One small file per plan, named by its content: the same command writes the same file, other commands add
theirs, and what was planned is all of them together. Grids are kept as grids, not as lists of cases.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.records.case import Case, safe_name

PLANS_FOLDER = Path(".agentsys", "plans")
"""In the log folder."""

_CELL = ("benchmark", "version", "model", "defense", "attack", "epoch")


class _PlanPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedGrid(_PlanPart):
    """User tasks of a suite, each with the same injection tasks."""

    suite: str
    user_tasks: tuple[str, ...]
    injection_tasks: tuple[str | None, ...]
    """None: the benign case."""


class PlannedCell(_PlanPart):
    """The cases of one model, defense, attack and epoch."""

    benchmark: str
    version: str
    model: str
    defense: str
    attack: str
    epoch: int = 0
    grids: tuple[PlannedGrid, ...]

    @property
    def keys(self) -> Iterator[str]:
        """Paths of its records under the log folder, as `Case.key` has them."""
        pipeline, attack = self._pipeline, safe_name(self.attack)
        for grid in self.grids:
            for user, injection in product(grid.user_tasks, grid.injection_tasks):
                folder = f"{pipeline}/{safe_name(grid.suite)}/{safe_name(user)}/{attack}"
                yield f"{folder}/{safe_name(injection or 'none')}.json"

    @property
    def _pipeline(self) -> str:
        fields = self.model_dump(exclude={"grids"})
        return Case(**fields, suite="", user_task_id="", injection_task_id=None).pipeline


class StoredPlan(BaseModel):
    """One plan's file."""

    # Plans of earlier versions may hold more besides, which says nothing of the cases.
    model_config = ConfigDict(frozen=True, extra="ignore")

    cells: tuple[PlannedCell, ...]


class CaseGroup(NamedTuple):
    """Cases that differ in their tasks alone."""

    example: Case
    """Any of them."""
    task_pairs: Iterable[tuple[str, str | None]]
    """Ids of the user task and the injection task of each, in order."""


def build_stored_plan(parts: Iterable[CaseGroup]) -> StoredPlan:
    """A plan in its stored form; `parts` are its cases in order."""
    cells: defaultdict[tuple[str | int, ...], defaultdict[tuple[str, str], list[str | None]]]
    cells = defaultdict(lambda: defaultdict(list))
    for case, pairs in parts:
        by_user = cells[tuple(getattr(case, field) for field in _CELL)]
        for user, injection in pairs:
            by_user[case.suite, user].append(injection)
    found = []
    for cell, by_user in cells.items():
        grids: defaultdict[tuple[str, tuple[str | None, ...]], list[str]] = defaultdict(list)
        for (suite, user), injections in by_user.items():
            grids[suite, tuple(injections)].append(user)
        kept = tuple(
            PlannedGrid(suite=suite, user_tasks=tuple(users), injection_tasks=injections)
            for (suite, injections), users in grids.items()
        )
        found.append(PlannedCell.model_validate({**dict(zip(_CELL, cell, strict=True)), "grids": kept}))
    return StoredPlan(cells=tuple(found))


def encode_plan(logdir: Path, plan: StoredPlan) -> tuple[Path, bytes]:
    """The place where a plan is to be kept, and the content of its file."""
    data = orjson.dumps(plan.model_dump())
    return logdir / PLANS_FOLDER / f"{hashlib.sha256(data).hexdigest()[:16]}.plan", data


def load_planned_cells(logdir: Path) -> list[PlannedCell]:
    """Everything that was ever planned into a log folder; empty where no plan is kept or can be read."""
    return [cell for plan in _load_plans(logdir) for cell in plan.cells]


def _load_plans(logdir: Path) -> Iterator[StoredPlan]:
    for path in sorted((logdir / PLANS_FOLDER).glob("*.plan")):
        try:
            yield StoredPlan.model_validate(orjson.loads(path.read_bytes()))
        except (OSError, ValueError, ValidationError):  # a newer version's, or damaged: nothing to tell
            continue
