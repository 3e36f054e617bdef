"""Pairs of tasks that an attack applies to, and what is said of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsys.abilities import PicksPairs, NamesExclusions, SparesUserTasks
from agentsys.grouping import group_by
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
    return tuple(_sum_of_attack(label, found) for label, found in by_attack.items() if any(p.unfit for _, p in found))


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
