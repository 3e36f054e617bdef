"""Two defenses on the same cases: which cases both have, and the difference of their rates on these."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from agentsys.analysis.statistics.difference import (
    Difference,
    mean_difference,
    paired_grid,
    pooled_difference,
    suite_difference,
)
from agentsys.analysis.statistics.error_rule import NO_TEXT, ErrorRule, outcome
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side
from agentsys.analysis.statistics.outcome_grid import Tally, tally
from agentsys.analysis.statistics.sign_flips import SignDraws
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


class Compared(NamedTuple):
    """A rate under both defenses at one level; everything in proportions."""

    baseline: float
    defense: float
    difference: Difference
    """The defense's rate less the baseline's."""


def _identity(case: CaseRow) -> Hashable:
    return replace(case, defense="").identity


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
    counted = tuple(pair for pair in both if all(outcome(case, rule) is not None for case in pair))
    return Pairing(
        counted,
        len(both) - len(counted),
        len(first.keys() - second.keys()),
        len(second.keys() - first.keys()),
        sum(any(case.error_kind in NO_TEXT for case in pair) for pair in both),
    )


def compared(
    pairs: Sequence[Pair], side: Side, draws: SignDraws, rule: ErrorRule = ErrorRule.REPORT
) -> dict[str, Compared]:
    """The difference of a rate per suite, then `overall`, then `pooled`, on pairs of one model and attack."""
    suites = sorted({pair.baseline.suite for pair in pairs})
    grouped = {suite: [pair for pair in pairs if pair.baseline.suite == suite] for suite in suites}
    first = [tally(suite, [pair.baseline for pair in found], rule) for suite, found in grouped.items()]
    second = [tally(suite, [pair.defense for pair in found], rule) for suite, found in grouped.items()]
    return differences(first, second, side, draws)


def from_zero(counted: Sequence[Tally], side: Side, draws: SignDraws) -> dict[str, Compared]:
    """The same for one defense's cases, sorted by suite, against a rate of 0 on each of them."""
    none = [
        replace(found, solved=np.zeros_like(found.cases), hijacked=np.zeros_like(found.cases))
        for found in counted
    ]
    return differences(none, counted, side, draws)


def differences(
    before: Sequence[Tally], after: Sequence[Tally], side: Side, draws: SignDraws
) -> dict[str, Compared]:
    """The difference of a rate per suite, then `overall`, then `pooled`."""
    grids = [paired_grid(*both, side, draws) for both in zip(before, after, strict=True)]
    levels = {found.counted.suite: suite_difference(found) for found in grids}
    return {
        level: Compared(found.rate_before, found.rate_after, found)
        for level, found in {
            **levels,
            OVERALL: mean_difference(grids),
            POOLED: pooled_difference(grids),
        }.items()
    }


def changed(pairs: Iterable[Pair], side: Side, rule: ErrorRule, *, to: bool) -> list[Pair]:
    """Pairs in which the defense turned an outcome into `to` and the baseline did not have it so."""

    def happened(case: CaseRow) -> bool:
        found = outcome(case, rule)
        return found is not None and (found.utility if side is Side.SOLVED else found.injection_success)

    return [pair for pair in pairs if happened(pair.defense) is to and happened(pair.baseline) is not to]


def exposed_in_both(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs in which a tool returned the payload under both defenses: neither was spared by luck."""
    return tuple(pair for pair in pairs if pair.baseline.exposed_raw and pair.defense.exposed_raw)
