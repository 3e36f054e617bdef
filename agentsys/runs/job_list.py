"""`JobList`: the cases of a plan, each made when it is asked for; a plan holds the pairs of tasks alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import overload

from agentsys.records.case import Case, make_safe_name
from agentsys.runs.cell import Cell, CellLabels, Job

TaskPair = tuple[str, str | None]
"""Ids of a user task and of an injection task (None: no attack)."""


def make_job(cell: Cell, suite: str, pair: TaskPair, epoch: int) -> Job:
    """Build a cell's case for one pair of tasks and one epoch."""
    labels, (user_task, injection_task) = cell.settings.labels, pair
    case = Case(
        benchmark=cell.benchmark.name,
        version=cell.benchmark.version,
        suite=suite,
        user_task_id=user_task,
        injection_task_id=injection_task,
        attack=labels["attack"],
        model=labels["model"],
        defense=labels["defense"],
        epoch=epoch,
    )
    return Job(case, cell)


def make_file_names(pair: TaskPair) -> tuple[str, str]:
    """The parts of a record's path that a pair of tasks decides: two pairs may share them."""
    user_task, injection_task = pair
    return make_safe_name(user_task), make_safe_name(injection_task or "none")


@dataclass(frozen=True)
class JobBlock:
    """The cases of one cell, suite and epoch."""

    cell: Cell
    suite: str
    epoch: int
    pairs: Sequence[TaskPair]
    """At least one; blocks of the same tasks share them."""

    def __iter__(self) -> Iterator[Job]:
        return (make_job(self.cell, self.suite, pair, self.epoch) for pair in self.pairs)

    @property
    def first(self) -> Job:
        """Its first case."""
        return make_job(self.cell, self.suite, self.pairs[0], self.epoch)


class JobList(Sequence[Job]):
    """Cases in blocks. A million of them take the memory of their blocks."""

    def __init__(self, blocks: Iterable[JobBlock]) -> None:
        self.blocks = tuple(block for block in blocks if block.pairs)
        self._ends = [*accumulate(len(block.pairs) for block in self.blocks)]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Job]:
        return chain.from_iterable(self.blocks)

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job]: ...
    def __getitem__(self, place: int | slice) -> Job | list[Job]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        number = bisect_right(self._ends, at)
        block = self.blocks[number]
        return make_job(block.cell, block.suite, block.pairs[at - self._ends[number]], block.epoch)

    @property
    def cells(self) -> list[Cell]:
        """The cells of these cases, each once."""
        return list({id(block.cell): block.cell for block in self.blocks}.values())

    @property
    def pipelines(self) -> list[str]:
        """The folders of these cases below the log folder, each once."""
        return list(dict.fromkeys(block.first.case.pipeline for block in self.blocks))

    @property
    def searched(self) -> JobList:
        """The cases whose text has to be searched for: all of a block, or none."""
        return JobList(block for block in self.blocks if block.first.needs_search)

    def count_by_labels(self) -> Counter[CellLabels]:
        """Cell's labels -> its cases."""
        counts: Counter[CellLabels] = Counter()
        for block in self.blocks:
            counts[block.first.labels] += len(block.pairs)
        return counts

    def group_by_labels(self) -> Mapping[CellLabels, Mapping[str, JobList]]:
        """Cell's labels -> suite -> its cases."""
        groups: defaultdict[CellLabels, defaultdict[str, list[JobBlock]]]
        groups = defaultdict(lambda: defaultdict(list))
        for block in self.blocks:
            groups[block.first.labels][block.suite].append(block)
        return {
            labels: {suite: JobList(blocks) for suite, blocks in by_suite.items()}
            for labels, by_suite in groups.items()
        }

    def replace_cells(self, change: Callable[[Cell], Cell | None]) -> JobList:
        """Copy the list with changed cells; where `change` returns None, the cell's cases are dropped."""
        changed = {id(cell): change(cell) for cell in self.cells}
        return JobList(
            replace(block, cell=cell)
            for block in self.blocks
            if (cell := changed[id(block.cell)]) is not None
        )
