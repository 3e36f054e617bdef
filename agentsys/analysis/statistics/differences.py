"""The difference of a rate between two sides on the same cases, and what sign flips make of it.

If neither side is better, every task could as well have favoured the other one. The sign of a task's cases
is therefore flipped at random, all of them together, in every suite; once by user task, once by injection
task. Each flip is measured in standard errors of its own: flipping one kind of task leaves the other kind's
share of the error unknown, and only an error computed anew accounts for it.

Sources: I. A. Canay, J. P. Romano, A. M. Shaikh, "Randomization tests under an approximate symmetry
assumption", Econometrica 85(3), 2017 (sign changes of few clusters); A. C. Cameron, J. B. Gelbach, D. L.
Miller, "Robust inference with multiway clustering", Journal of Business & Economic Statistics 29(2), 2011
(the two-way error). What was tried and how often the test errs: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from agentsys.analysis.statistics.case_pairs import Pair, tally_pairs
from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    FloatArray,
    Side,
    Spread,
    Tally,
    cautious_moments,
    generator_of,
    scale_spread,
    spread_of,
)
from agentsys.analysis.statistics.rate_estimates import NOTHING, OVERALL, POOLED, StandardError

SIGN_DRAWS = 9999
"""Flips that are drawn: two seeds differ by about 0.001 at p = 0.002."""
ENUMERATED = 12
"""Tasks of one kind up to which every pattern of signs is looked at: 2^11, as one sign may be fixed."""
_SLACK = 1 - 2e-9
"""Rounding by which a squared statistic may miss the observed one and still count as equal to it."""


@dataclass(frozen=True)
class SignDraws:
    """Draws signs. The same tasks of a suite get the same signs everywhere, whatever else is compared."""

    draws: int = SIGN_DRAWS
    seed: int = 0

    def signs(self, suite: str, way: str, tasks: tuple[str, ...]) -> FloatArray:
        """Draw one sign per task.

        Args:
            suite: The suite's name.
            way: `user` or `injection`.
            tasks: Length k, sorted.

        Returns:
            Shape (draws, k), of -1 and 1.
        """
        return _draw_signs(self.draws, (str(self.seed), "signs", suite, way, *tasks))


@lru_cache(maxsize=16)  # for all that is compared on the same suites; one of 40 tasks takes 3 MB
def _draw_signs(draws: int, key: tuple[str, ...]) -> FloatArray:
    tasks = len(key) - 4
    count = draws * tasks
    bits = np.unpackbits(np.frombuffer(generator_of(*key).bytes(-(-count // 8)), np.uint8), count=count)
    return bits.reshape(draws, tasks).astype(np.float64) * 2 - 1


def every_pattern(count: int) -> FloatArray:
    """All patterns of signs that differ in more than the overall sign; shape (2^(count - 1), count)."""
    numbers = np.arange(2 ** (count - 1))[:, None]
    return 1 - 2 * (numbers >> np.arange(count) & 1).astype(np.float64)


class FlippedSums(NamedTuple):
    """One suite's sums in each flip; counts of cases, not proportions."""

    change: FloatArray
    """Shape (flips,): what the defense has more than the baseline."""
    cases: FloatArray
    """Shape (flips,): the same of the numbers of cases, for a difference other than 0."""
    across: FloatArray
    """Shape (3, flips): `squares` of the sums by the kind of task that is not flipped."""


def flipped_sums(
    signs: FloatArray, change: FloatArray, cases: FloatArray, *, brief: bool = False
) -> FlippedSums:
    """Flip a suite's tasks.

    Args:
        signs: Shape (flips, k).
        change: Shape (k, other kind of task): hits of the defense less those of the baseline.
        cases: Shape likewise.
        brief: Whether only a true difference of 0 is asked about; then the rest is left out.
    """
    changed_pairs = signs @ change
    if brief:
        total = changed_pairs.sum(axis=1)
        return FlippedSums(total, np.zeros_like(total), squares(changed_pairs, None))
    counted = signs @ cases
    return FlippedSums(changed_pairs.sum(axis=1), counted.sum(axis=1), squares(changed_pairs, counted))


def squares(change: FloatArray, cases: FloatArray | None) -> FloatArray:
    """Coefficients, in D, of the sum of squares of `change - D * cases` over the last axis.

    Returns:
        Shape (3, ...): of 1, -2D and D^2; without cases the first one alone.
    """
    pairs = [(change, change)]
    if cases is not None:
        pairs += [(change, cases), (cases, cases)]
    return np.stack([np.einsum("...k,...k->...", one, other) for one, other in pairs])


@dataclass(frozen=True)
class FlipReference:
    """The statistic under flips of one kind of task. Suites along S, flips along N; proportions."""

    value: float
    """The observed difference."""
    change: FloatArray
    """Shape (N,): the difference in each flip."""
    cases: FloatArray
    """Shape (N,): the part of it that a true difference of 1 takes away."""
    across: FloatArray | None
    """Shape (3, S, N): `squares` of the sums by the other kind of task in each flip; None without one."""
    own: FloatArray
    """Shape (3, S): of the observed sums by the flipped kind of task, which no flip changes."""
    other: FloatArray
    """Shape (3, S): of the observed sums by the other kind."""
    single: FloatArray
    """Shape (3, S): of single cells."""
    complete: bool
    """Whether the flips are all there are, the observed one included."""

    def p(self, at: float) -> float:
        """Share of flips whose difference is, in its own standard errors, at least the observed one.

        Args:
            at: The true difference that is put to the test.
        """
        own, other, single = (_at(part, at) for part in (self.own, self.other, self.single))
        # Variance per suite: own + other - single, at least that of either kind of task alone.
        spare = np.maximum(own - single, 0.0)
        observed = own.sum()
        flipped: FloatArray | np.float64 = observed
        if self.across is not None:
            observed = np.maximum(other + spare, own).sum()
            flipped = np.maximum(_at(self.across, at) + spare[:, None], own[:, None]).sum(axis=0)
        reached = (self.change - at * self.cases) ** 2 * observed
        count = int(np.count_nonzero(reached >= _SLACK * (self.value - at) ** 2 * flipped))
        return count / len(self.change) if self.complete else (1 + count) / (len(self.change) + 1)


def _at(coefficients: FloatArray, difference: float) -> FloatArray:
    if not difference:
        return np.asarray(coefficients[0])
    found: FloatArray = coefficients[0] - 2 * difference * coefficients[1] + difference**2 * coefficients[2]
    return found


@dataclass(frozen=True)
class PairedGrid:
    """One suite's cases under two defenses, on the grid of user tasks and injection tasks."""

    counted: Tally
    """The cases that both have, as counted under the defense."""
    before: FloatArray
    """Shape (U, I): hits under the baseline."""
    after: FloatArray
    """Shape (U, I): hits under the defense."""
    draws: SignDraws

    @cached_property
    def change(self) -> FloatArray:
        """Hits that the defense has more; shape (U, I)."""
        return self.after - self.before

    @cached_property
    def spread(self) -> Spread:
        """Spread of the difference over tasks; the same at every level, but for its share."""
        return spread_of(self.change, self.counted)

    @cached_property
    def user_flips(self) -> FlippedSums:
        """Sums with the signs of user tasks drawn; the same at every level that the suite is part of."""
        return flipped_sums(self.signs("user"), self.change, self.counted.cases)

    @cached_property
    def injection_flips(self) -> FlippedSums:
        """Sums with the signs of injection tasks drawn."""
        return flipped_sums(self.signs("injection"), self.change.T, self.counted.cases.T)

    def signs(self, kind: str) -> FloatArray:
        """Draw the signs of one kind of task."""
        counted = self.counted
        tasks = counted.user_tasks if kind == "user" else counted.injection_tasks
        return self.draws.signs(counted.suite, kind, tasks)


@dataclass(frozen=True)
class Difference:
    """The defense's rate less the baseline's: a weighted mean over suites. In proportions."""

    grids: tuple[PairedGrid, ...]
    shares: tuple[float, ...]
    """What each suite weighs; adds up to 1."""
    spreads: tuple[Spread, ...]
    """How each suite's tasks carry the difference."""

    @cached_property
    def value(self) -> float:
        """The observed difference."""
        return weighted_mean([grid.change for grid in self.grids], self)

    @property
    def rate_before(self) -> float:
        """The baseline's rate."""
        return weighted_mean([grid.before for grid in self.grids], self)

    @property
    def rate_after(self) -> float:
        """The defense's rate."""
        return weighted_mean([grid.after for grid in self.grids], self)

    @property
    def n(self) -> int:
        """Cases it rests on."""
        return round(sum(float(grid.counted.cases.sum()) for grid in self.grids))

    @property
    def errors(self) -> int:
        """Errored cases among those that were to be counted."""
        return sum(grid.counted.errors for grid in self.grids)

    @cached_property
    def error(self) -> StandardError:
        """Its standard error; nan where there is nothing to flip, 0 where all cases differ alike."""
        if not any(self.flippable):
            return StandardError(math.nan, 1.0)
        found = cautious_moments(self.spreads)
        return StandardError(math.sqrt(found.variance) if found.variance > NOTHING else 0.0, found.df)

    @property
    def flippable(self) -> tuple[bool, bool]:
        """Whether some suite has two user tasks or more, and two injection tasks or more."""
        shapes = [grid.change.shape for grid in self.grids]
        return any(users > 1 for users, _ in shapes), any(injections > 1 for _, injections in shapes)

    @cached_property
    def references(self) -> tuple[FlipReference, ...]:
        """References of chance, one by each kind of task that can be flipped."""
        kinds = zip(("user", "injection"), self.flippable, strict=True)
        both = all(self.flippable)
        return tuple(self._reference(kind, both=both) for kind, flippable in kinds if flippable)

    @cached_property
    def brief_references(self) -> tuple[FlipReference, ...]:
        """The same, able to tell of a true difference of 0 alone."""
        kinds = zip(("user", "injection"), self.flippable, strict=True)
        both = all(self.flippable)
        return tuple(self._reference(kind, both=both, brief=True) for kind, flippable in kinds if flippable)

    def _reference(self, kind: str, *, both: bool, brief: bool = False) -> FlipReference:
        """Flip one kind of task, which stands along the rows here."""
        grids = [(grid.change, grid.counted.cases) for grid in self.grids]
        if kind == "injection":
            grids = [(change.T, cases.T) for change, cases in grids]
        sums = _all_patterns(grids)
        if not sums and brief:
            sums = [
                flipped_sums(grid.signs(kind), *parts, brief=True)
                for grid, parts in zip(self.grids, grids, strict=True)
            ]
        sums = sums or [getattr(grid, f"{kind}_flips") for grid in self.grids]
        weights = np.array(
            [share / cases.sum() for (_, cases), share in zip(grids, self.shares, strict=True)]
        )
        squared = weights**2
        own, other = (
            np.stack([squares(*(part.sum(axis=axis) for part in grid)) for grid in grids], axis=1) * squared
            for axis in (1, 0)
        )
        single = np.stack([squares(*(part.ravel() for part in grid)) for grid in grids], axis=1) * squared
        return FlipReference(
            self.value,
            change=weights @ np.stack([found.change for found in sums]),
            cases=weights @ np.stack([found.cases for found in sums]),
            across=np.stack([s.across for s in sums], axis=1) * squared[:, None] if both else None,
            own=own,
            other=other,
            single=single,
            complete=_few(grids),
        )


def suite_difference(grid: PairedGrid) -> Difference:
    """The difference in one suite."""
    return _difference([grid], [1.0])


def mean_difference(grids: Sequence[PairedGrid]) -> Difference:
    """The unweighted mean of the suites' differences."""
    return _difference(grids, [1 / len(grids)] * len(grids))


def pooled_difference(grids: Sequence[PairedGrid]) -> Difference:
    """The difference of all cases of all suites together."""
    cases = [float(grid.counted.cases.sum()) for grid in grids]
    return _difference(grids, [count / sum(cases) for count in cases])


def weighted_mean(hits: Sequence[FloatArray], of: Difference) -> float:
    """Mean over suites of hits per case, as a difference weighs them.

    Args:
        hits: One grid per suite, shape (U, I) each.
        of: The difference.
    """
    return math.fsum(
        share * float(found.sum() / grid.counted.cases.sum())
        for found, grid, share in zip(hits, of.grids, of.shares, strict=True)
    )


def _difference(grids: Sequence[PairedGrid], shares: Sequence[float]) -> Difference:
    if len(grids) > 1 and all(len(grid.counted.user_tasks) == 1 for grid in grids):
        return _difference_of_suites(grids, shares)
    spreads = [scale_spread(grid.spread, share) for grid, share in zip(grids, shares, strict=True)]
    return Difference(tuple(grids), tuple(shares), tuple(spreads))


def _difference_of_suites(grids: Sequence[PairedGrid], shares: Sequence[float]) -> Difference:
    """Suites in the place of user tasks, where each has a single one (see `single_task_suites`)."""
    total = sum(float(grid.counted.cases.sum()) for grid in grids)
    # As many cases per suite as give it its share; its rates stay what they are.
    factors = [share * total / grid.counted.cases.sum() for grid, share in zip(grids, shares, strict=True)]
    order = sorted(range(len(grids)), key=lambda at: grids[at].counted.suite)

    def column(parts: Sequence[FloatArray]) -> FloatArray:
        return np.array([[factors[at] * parts[at].sum()] for at in order])

    counted = [grid.counted for grid in grids]
    before, after = column([grid.before for grid in grids]), column([grid.after for grid in grids])
    suites = tuple(counted[at].suite for at in order)
    errors = sum(found.errors for found in counted)
    drawn = Tally("", suites, ("",), column([found.cases for found in counted]), after, after, errors)
    whole = spread_of(after - before, drawn)
    # One more success in each suite: what could have been seen at least (as in `single_task_suites`).
    lone = [1 / (len(grids) * np.count_nonzero(found.cases)) for found in counted]
    whole = replace(whole, lone=sum(lone), lone_variance=sum(one**2 for one in lone))
    return Difference((PairedGrid(drawn, before, after, grids[0].draws),), (1.0,), (whole,))


def _few(grids: Sequence[tuple[FloatArray, FloatArray]]) -> bool:
    return sum(len(change) for change, _ in grids) <= ENUMERATED


def _all_patterns(grids: Sequence[tuple[FloatArray, FloatArray]]) -> list[FlippedSums]:
    """Each suite's sums in every pattern of signs over all suites; none where tasks are many."""
    if not _few(grids):
        return []
    ends = np.cumsum([len(change) for change, _ in grids])
    parts = np.split(every_pattern(int(ends[-1])), ends[:-1], axis=1)
    return [flipped_sums(signs, *grid) for signs, grid in zip(parts, grids, strict=True)]


def compare_pairs(
    pairs: Sequence[Pair], side: Side, draws: SignDraws, rule: ErrorRule = ErrorRule.REPORT
) -> dict[str, Difference]:
    """The difference of a rate per suite, then `overall`, then `pooled`, on pairs of one model and attack."""
    before, after = tally_pairs(pairs, rule)
    return difference_levels(list(before.values()), list(after.values()), side, draws)


def overall_difference(
    before: Sequence[Tally], after: Sequence[Tally], side: Side, draws: SignDraws
) -> Difference:
    """The difference of a rate overall, on the same cases."""
    return mean_difference(_pair_grids(before, after, side, draws))


def _pair_grids(
    before: Sequence[Tally], after: Sequence[Tally], side: Side, draws: SignDraws
) -> list[PairedGrid]:
    return [
        PairedGrid(second, first.hits(side), second.hits(side), draws)
        for first, second in zip(before, after, strict=True)
    ]


def differences_from_zero(counted: Sequence[Tally], side: Side, draws: SignDraws) -> dict[str, Difference]:
    """The same for one defense's cases, sorted by suite, against a rate of 0 on each of them."""
    none = [
        replace(found, solved=np.zeros_like(found.cases), hijacked=np.zeros_like(found.cases))
        for found in counted
    ]
    return difference_levels(none, counted, side, draws)


def difference_levels(
    before: Sequence[Tally], after: Sequence[Tally], side: Side, draws: SignDraws
) -> dict[str, Difference]:
    """The difference of a rate per suite, then `overall`, then `pooled`."""
    grids = _pair_grids(before, after, side, draws)
    by_suite = {grid.counted.suite: suite_difference(grid) for grid in grids}
    return {**by_suite, OVERALL: mean_difference(grids), POOLED: pooled_difference(grids)}
