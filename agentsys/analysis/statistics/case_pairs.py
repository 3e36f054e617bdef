"""Cases of two sides, side by side: which of them both have, and whose outcome differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentsys.analysis.statistics.outcome_grid import (
    NO_TEXT,
    ErrorRule,
    Side,
    Tally,
    outcome_of,
    tally_suites,
)
from agentsys.records.case_row import CaseRow


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


def pair_up(
    baseline: Iterable[CaseRow], defense: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT
) -> Pairing:
    """Find the cases that two defenses share: those of one suite, user task, injection task and epoch.

    Args:
        baseline: Cases of one cell.
        defense: Cases of the other.
        rule: What errored cases count as; one that is left out on one side is left out on both.
    """
    first = {case.task_key: case for case in baseline}
    second = {case.task_key: case for case in defense}
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


def changed_pairs(pairs: Iterable[Pair], side: Side, rule: ErrorRule) -> tuple[list[Pair], list[Pair]]:
    """Pairs with an outcome in the defense's case alone, and in the baseline's alone."""

    def happened(case: CaseRow) -> bool:
        found = outcome_of(case, rule)
        return found is not None and (found.utility if side is Side.SOLVED else found.injection_success)

    changed: tuple[list[Pair], list[Pair]] = [], []
    for pair in pairs:
        after = happened(pair.defense)
        if happened(pair.baseline) is not after:
            changed[0 if after else 1].append(pair)
    return changed


def exposed_pairs(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs in which a tool returned the payload under both defenses: neither was spared by luck."""
    return tuple(pair for pair in pairs if pair.baseline.exposed_raw and pair.defense.exposed_raw)
