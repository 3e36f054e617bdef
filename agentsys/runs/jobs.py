"""The cases of a plan in order (`Jobs`), made of the pairs of tasks that each attack applies to.

A case is made when it is asked for: a million take no more room than their cells. A block stands for the
cases of one cell and suite; blocks of the same pairs share one tuple of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from typing import overload

from agentsys.abilities import NamesExclusions, PicksPairs, SparesUserTasks
from agentsys.base.grouping import group_by
from agentsys.records.case import Case
from agentsys.records.stored_plan import CaseGroup
from agentsys.runs.cell import Cell

TaskPair = tuple[str, str | None]
"""Ids of a user task and of an injection task (None: no attack)."""


@dataclass(frozen=True)
class CellPairs:
    """The pairs of one cell."""

    fit: Mapping[str, tuple[TaskPair, ...]]
    """Suite -> the pairs that its attack applies to."""
    unfit: frozenset[tuple[str, TaskPair]]
    """(suite, pair) of the others."""


@dataclass(frozen=True)
class ExcludedPairs:
    """The pairs that one attack does not apply to."""

    attack: str
    """Its label."""
    why: str
    """What stands between the attack's label and the number of pairs."""
    pairs: int
    """Pairs of tasks, each counted once."""
    cases: int
    """Cases that would have been planned of these pairs: once per defense, model and epoch."""
    empty: bool
    """Whether no case of this attack is left."""

    @property
    def summary_line(self) -> str:
        """One line, e.g. `24 cases left out: injection_round+round=2 has nowhere to write in 12 pairs`."""
        cases = "1 case" if self.cases == 1 else f"{self.cases} cases"
        pairs = "1 pair" if self.pairs == 1 else f"{self.pairs} pairs"
        nothing = " (all there are: it has no case in this run)" if self.empty else ""
        return f"{cases} left out: {self.attack} {self.why} {pairs}{nothing}."


def find_applicable_pairs(cell: Cell, pairs: Mapping[str, Sequence[TaskPair]]) -> CellPairs:
    """Sort a cell's pairs by its attack's own `applies_to`; without one it applies to all.

    A user task that its suite lists in `without_vectors` has no attacked pairs at all.

    Args:
        cell: The cell.
        pairs: Suite -> pairs.
    """
    asked = cell.attack.applies_to if isinstance(cell.attack, PicksPairs) else None
    fit: dict[str, tuple[TaskPair, ...]] = {}
    unfit: set[tuple[str, TaskPair]] = set()
    for name, listed in pairs.items():
        suite = cell.benchmark.suite(name)
        without_vectors = suite.without_vectors if isinstance(suite, SparesUserTasks) else ()
        # Once for all pairs: AgentDojo's suites look for the version of each task whenever they are asked.
        users, injections = suite.user_tasks, suite.injection_tasks
        fit[name] = tuple(
            (user, injection)
            for user, injection in listed
            if injection is None
            or (
                user not in without_vectors
                and (asked is None or asked(suite, users[user], injections[injection]))
            )
        )
        unfit |= {(name, pair) for pair in set(listed).difference(fit[name])}
    return CellPairs(fit, frozenset(unfit))


def sum_excluded(cells: Sequence[tuple[Cell, CellPairs]]) -> tuple[ExcludedPairs, ...]:
    """Sum up what several cells leave out, one per attack, in the order of the cells."""
    by_attack = group_by(cells, lambda cell: cell[0].settings.labels["attack"])
    return tuple(
        _sum_of_attack(label, found) for label, found in by_attack.items() if any(p.unfit for _, p in found)
    )


def _sum_of_attack(label: str, found: Sequence[tuple[Cell, CellPairs]]) -> ExcludedPairs:
    attack = found[0][0].attack
    return ExcludedPairs(
        attack=label,
        why=attack.left_out if isinstance(attack, NamesExclusions) else "does not apply to",
        pairs=len(frozenset().union(*(pairs.unfit for _, pairs in found))),
        cases=sum(len(pairs.unfit) * cell.settings.epochs for cell, pairs in found),
        empty=not any(fitting for _, pairs in found for fitting in pairs.fit.values()),
    )


def nothing_left_message(skipped: Sequence[ExcludedPairs]) -> str:
    """One line for a run in which no case is left."""
    first = skipped[0]
    more = f" (nor do the other {len(skipped) - 1} attacks)" if len(skipped) > 1 else ""
    return (
        f"No case to run: attack {first.attack} {first.why} {first.pairs} pairs, which are all that were"
        f" chosen{more}. Choose other suites, user_tasks or injection_tasks, or another attack."
    )


@dataclass(frozen=True)
class Job:
    """A case with the cell it belongs to."""

    case: Case
    cell: Cell


@dataclass(frozen=True, eq=False)
class JobBlock:
    """The cases of one cell and suite: every pair of the first epoch, then every pair of the next."""

    cell: Cell
    suite: str
    pairs: tuple[TaskPair, ...]
    epochs: range
    chosen: array[int] | None = None
    """Places in that order of those that are meant; None: all."""

    def __len__(self) -> int:
        return len(self.epochs) * len(self.pairs) if self.chosen is None else len(self.chosen)

    def __iter__(self) -> Iterator[Job]:
        return map(self._make_job, self._indices)

    def __getitem__(self, index: int) -> Job:
        return self._make_job(self._indices[index])

    @property
    def labels(self) -> tuple[str, str, str]:
        """Labels of model, defense and attack."""
        labels = self.cell.settings.labels
        return labels["model"], labels["defense"], labels["attack"]

    @property
    def pipelines(self) -> list[str]:
        """The folders that the records of these cases lie in."""
        size = len(self.pairs)
        places = (
            self._indices[::size] if self.chosen is None else {p // size * size: p for p in self._indices}
        )
        return [self._make_job(place).case.pipeline for place in places]

    @property
    def plan_parts(self) -> Iterator[CaseGroup]:
        """The cases in order, those of each epoch together: of these one is made."""
        size = len(self.pairs)
        for epoch, places in groupby(self._indices, lambda place: place // size):
            yield CaseGroup(self._make_job(epoch * size).case, [self.pairs[place % size] for place in places])

    def select(self, wanted: Callable[[Job], bool]) -> JobBlock:
        """Those of the cases that are wanted; each is asked for once, in order."""
        places = self._indices
        kept = array("I", (place for place in places if wanted(self._make_job(place))))
        return self if len(kept) == len(places) else replace(self, chosen=kept)

    @property
    def _indices(self) -> Sequence[int]:
        return range(len(self.epochs) * len(self.pairs)) if self.chosen is None else self.chosen

    def _make_job(self, place: int) -> Job:
        epoch, pair = divmod(place, len(self.pairs))
        user_task, injection_task = self.pairs[pair]
        benchmark, (model, defense, attack) = self.cell.benchmark, self.labels
        case = Case(
            benchmark=benchmark.name,
            version=benchmark.version,
            suite=self.suite,
            user_task_id=user_task,
            injection_task_id=injection_task,
            attack=attack,
            model=model,
            defense=defense,
            epoch=self.epochs[epoch],
        )
        return Job(case, self.cell)


class Jobs(Sequence[Job]):
    """Cases in order. Equal to any sequence of the same cases.

    Args:
        blocks: Their blocks; empty ones are dropped.
    """

    def __init__(self, blocks: Iterable[JobBlock] = ()) -> None:
        self.blocks = tuple(block for block in blocks if len(block))
        self._ends = tuple(accumulate(map(len, self.blocks)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Job]:
        return chain.from_iterable(self.blocks)

    @property
    def plan_parts(self) -> Iterator[CaseGroup]:
        """The cases in order, as a plan is stored: without each being made."""
        return chain.from_iterable(block.plan_parts for block in self.blocks)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Job, ...]: ...
    def __getitem__(self, index: int | slice) -> Job | tuple[Job, ...]:
        places = range(len(self))[index]
        return tuple(map(self._job_at, places)) if isinstance(places, range) else self._job_at(places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @property
    def cells(self) -> list[Cell]:
        """The cells that have a case here, each once."""
        return list({id(block.cell): block.cell for block in self.blocks}.values())

    def of_cells(self, wanted: Callable[[Cell], bool]) -> Jobs:
        """The cases of some cells."""
        return Jobs(block for block in self.blocks if wanted(block.cell))

    def replace_cells(self, change: Callable[[Cell], Cell]) -> Jobs:
        """The same cases over other cells."""
        return Jobs(replace(block, cell=change(block.cell)) for block in self.blocks)

    def _job_at(self, place: int) -> Job:
        block = bisect_right(self._ends, place)
        return self.blocks[block][place - (self._ends[block - 1] if block else 0)]
