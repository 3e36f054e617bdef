"""Cases of two sides, side by side: which of them both have, and whose outcome differs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agentsys.analysis.statistics.outcome_grid import (
    NO_TEXT,
    ErrorRule,
    Side,
    Tally,
    outcome_of,
    tally_suites,
)
from agentsys.records.case_row import IDENTITY, CaseRow


class Pair(NamedTuple):
    """One case under two defenses."""

    baseline: CaseRow
    defense: CaseRow


@dataclass(frozen=True)
class Pairing:
    """The cases of two defenses, side by side; every case is in exactly one field."""

    pairs: tuple[Pair, ...]
    """Cases that count on both sides, sorted."""
    errored: int
    """Cases stored on both sides that errored on one of them and are left out."""
    only_baseline: int
    """Cases that the other side lacks."""
    only_defense: int
    no_text: int = 0
    """Of `errored`, those for which a search's attacker gave no text on one side."""


_DEFENSE = IDENTITY.index("defense")


def _identity(case: CaseRow) -> Hashable:
    identity = case.identity
    return *identity[:_DEFENSE], "", *identity[_DEFENSE + 1 :]


def pair_up(
    baseline: Iterable[CaseRow],
    defense: Iterable[CaseRow],
    rule: ErrorRule = ErrorRule.REPORT,
    alike: Callable[[CaseRow], Hashable] = _identity,
) -> Pairing:
    """Finds the cases that two defenses share.

    Args:
        baseline: Cases of one defense; no two alike in everything else (as `read_cases` gives them).
        defense: Cases of the other.
        rule: What errored cases count as; one that is left out on one side is left out on both.
        alike: What the two cases of a pair have in common and no two cases of one side; by default
            everything that tells cases apart but the defense.

    Returns:
        Pairs that agree in it: in benchmark, version, model, attack, suite, both tasks and epoch.
    """
    first = {alike(case): case for case in baseline}
    second = {alike(case): case for case in defense}
    shared = sorted(first.keys() & second.keys(), key=str)
    both = [Pair(first[key], second[key]) for key in shared]
    counted = tuple(pair for pair in both if all(outcome_of(case, rule) is not None for case in pair))
    return Pairing(
        counted,
        len(both) - len(counted),
        len(first.keys() - second.keys()),
        len(second.keys() - first.keys()),
        sum(any(case.error_kind in NO_TEXT for case in pair) for pair in both),
    )


def tally_pairs(pairs: Sequence[Pair], rule: ErrorRule) -> tuple[dict[str, Tally], dict[str, Tally]]:
    """Suite -> counts of the baseline's cases, and of the others."""
    return (
        tally_suites([pair.baseline for pair in pairs], rule),
        tally_suites([pair.defense for pair in pairs], rule),
    )


def have_same_cases(before: Sequence[Tally], after: Sequence[Tally]) -> bool:
    """Whether two sides have the same cases, each once and none errored: then no pairing is needed."""
    return len(before) == len(after) and all(
        (first.suite, first.user_tasks, first.injection_tasks)
        == (second.suite, second.user_tasks, second.injection_tasks)
        and not first.errors + second.errors
        and first.cases.max(initial=0) <= 1
        and np.array_equal(first.cases, second.cases)
        for first, second in zip(before, after, strict=True)
    )


def count_changes(before: Sequence[Tally], after: Sequence[Tally], side: Side) -> tuple[int, int]:
    """Cases that gained an outcome and that lost it, where two sides have the same cases, each once."""
    changes = [second.hits(side) - first.hits(side) for first, second in zip(before, after, strict=True)]
    return sum(int((one > 0).sum()) for one in changes), sum(int((one < 0).sum()) for one in changes)


def changed_pairs(pairs: Iterable[Pair], side: Side, rule: ErrorRule, *, to: bool) -> list[Pair]:
    """Pairs in which the defense turned an outcome into `to` and the baseline did not have it so."""

    def happened(case: CaseRow) -> bool:
        found = outcome_of(case, rule)
        return found is not None and (found.utility if side is Side.SOLVED else found.injection_success)

    return [pair for pair in pairs if happened(pair.defense) is to and happened(pair.baseline) is not to]


def exposed_pairs(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs in which a tool returned the payload under both defenses: neither was spared by luck."""
    return tuple(pair for pair in pairs if pair.baseline.exposed_raw and pair.defense.exposed_raw)
