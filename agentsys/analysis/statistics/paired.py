"""Two defenses on the same cases: which cases both have, and the difference of their rates on these."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import NO_TEXT, ErrorRule, outcome
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Estimate, Side, macro, rate, totals
from agentsys.analysis.statistics.intervals import standard_error
from agentsys.analysis.statistics.outcome_grid import Tally, tally
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
    difference: Estimate
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
    pairs: Sequence[Pair], side: Side, resampler: Resampler, rule: ErrorRule = ErrorRule.REPORT
) -> dict[str, Compared]:
    """The difference of a rate per suite, then `overall`, then `pooled`.

    Every replicate weighs a case alike on both sides, so that what the two share cancels out.

    Args:
        pairs: Pairs of one model and one attack (or benign).
        side: Which outcome.
        resampler: Draws the tasks.
        rule: What errored cases count as.
    """
    suites = sorted({pair.baseline.suite for pair in pairs})
    grouped = {suite: [pair for pair in pairs if pair.baseline.suite == suite] for suite in suites}
    first = [tally(suite, [pair.baseline for pair in found], rule) for suite, found in grouped.items()]
    second = [tally(suite, [pair.defense for pair in found], rule) for suite, found in grouped.items()]
    parts = [totals(_difference(*both), side, resampler) for both in zip(first, second, strict=True)]
    rates = [rate([part]) for part in parts]
    before, after = _levels(first, side), _levels(second, side)
    differences = [*rates, macro(rates), rate(parts)]
    levels = zip(before, after, differences, strict=True)
    return dict(zip([*suites, OVERALL, POOLED], itertools.starmap(Compared, levels), strict=True))


def p_value(difference: Estimate) -> float:
    """Two-sided p-value of no difference.

    Student's t test with the clustered, corrected standard error. Where each suite's cases all differ
    in the same way there is no spread to divide by: then a sign test whose trials are the tasks of the
    more numerous kind, in as many suites as differ. nan where there is nothing to resample.
    """
    error = standard_error(difference)
    if np.isnan(error.value):
        return float("nan")
    if error.value > 0:
        return 2.0 * float(special.stdtr(error.df, -abs(difference.value) / error.value))
    differing = int(abs(difference.value) * len(difference.spreads) + 1e-9)
    if not differing and abs(difference.value) > 1e-9:
        differing = 1  # every task differs by the same part of its cases: they agree all the same
    fewest = min(max(len(part.users), len(part.injections)) for part in difference.spreads)
    return float(min(1.0, 2.0 ** (1 - differing * fewest)))


def changed(pairs: Iterable[Pair], side: Side, rule: ErrorRule, *, to: bool) -> list[Pair]:
    """Pairs in which the defense turned an outcome into `to` and the baseline did not have it so."""

    def happened(case: CaseRow) -> bool:
        found = outcome(case, rule)
        return found is not None and (found.utility if side is Side.SOLVED else found.injection_success)

    return [pair for pair in pairs if happened(pair.defense) is to and happened(pair.baseline) is not to]


def exposed_in_both(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs in which a tool returned the payload under both defenses: neither was spared by luck."""
    return tuple(pair for pair in pairs if pair.baseline.exposed_raw and pair.defense.exposed_raw)


def _difference(first: Tally, second: Tally) -> Tally:
    return replace(second, solved=second.solved - first.solved, hijacked=second.hijacked - first.hijacked)


def _levels(suites: Sequence[Tally], side: Side) -> list[float]:
    """One defense's own rates: each suite's, then their mean, then the pooled one."""
    hits = [float((suite.solved if side is Side.SOLVED else suite.hijacked).sum()) for suite in suites]
    cases = [float(suite.cases.sum()) for suite in suites]
    rates = [hit / count for hit, count in zip(hits, cases, strict=True)]
    return [*rates, float(np.mean(rates)), sum(hits) / sum(cases)]
