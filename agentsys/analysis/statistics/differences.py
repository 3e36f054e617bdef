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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from agentsys.analysis.statistics.case_outcomes import Pair
from agentsys.analysis.statistics.outcome_grid import (
    FloatArray,
    Side,
    Spread,
    Tally,
    make_generator,
    make_spread,
    scale_spread,
    stack_suites,
    sum_moments,
    tally_outcomes,
)
from agentsys.analysis.statistics.rate_estimates import NOTHING, OVERALL, POOLED, StandardError
from agentsys.base.grouping import group_by

Signs = npt.NDArray[np.floating[Any]]
_EXACT = 2**12
"""Cases whose number, squared, single precision holds exactly."""
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

    def draw_signs(self, suite: str, way: str, tasks: tuple[str, ...]) -> Signs:
        """Draw one sign per task.

        Args:
            suite: The suite's name.
            way: `user` or `injection`.
            tasks: Length k, sorted.

        Returns:
            Shape (draws, k), of -1 and 1.
        """
        return _draw_signs(self.draws, (str(self.seed), "signs", suite, way, *tasks))


@lru_cache(maxsize=16)  # for all that is compared on the same suites; one of 40 tasks takes 1.6 MB
def _draw_signs(draws: int, key: tuple[str, ...]) -> Signs:
    tasks = len(key) - 4
    count = draws * tasks
    bits = np.unpackbits(np.frombuffer(make_generator(*key).bytes(-(-count // 8)), np.uint8), count=count)
    # One task's signs lie beside each other: sums over tasks take half as long.
    return bits.reshape(draws, tasks).astype(np.float32, order="F") * 2 - 1


def list_sign_patterns(count: int) -> Signs:
    """All patterns of signs that differ in more than the overall sign; shape (2^(count - 1), count)."""
    numbers = np.arange(2 ** (count - 1))[:, None]
    return 1 - 2 * (numbers >> np.arange(count) & 1).astype(np.float32)


@dataclass(frozen=True)
class FlippedSums:
    """One suite's grid with the signs of one kind of task flipped, which stands along the rows here.

    The sums are those of `change - D * cases` for a true difference D. Where none but D = 0 is asked about, the
    cases' own are never made.
    """

    signs: Signs
    """Shape (flips, k)."""
    change: FloatArray
    """Shape (k, other kind of task): hits of the defense less those of the baseline."""
    cases: FloatArray
    """Shape likewise."""

    @cached_property
    def _of_change(self) -> tuple[Signs, FloatArray, FloatArray]:
        """Sums by the other kind of task, shape (tasks, flips); their total and their square, shape (flips,)."""
        sums, total = self._flip(self.change)
        return sums, total, _sum_column_products(sums, sums)

    @cached_property
    def _of_cases(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The total of the cases' sums, their product with those of the change, and their square."""
        sums, total = self._flip(self.cases)
        return total, _sum_column_products(self._of_change[0], sums), _sum_column_products(sums, sums)

    def _flip(self, grid: FloatArray) -> tuple[Signs, FloatArray]:
        # Whole numbers are exact in single precision, which takes half the time.
        exact = np.abs(grid).sum() < _EXACT and not (grid % 1).any()
        signs = self.signs if exact else self.signs.astype(np.float64)
        flipped: Signs = grid.T.astype(signs.dtype) @ signs.T
        return flipped, (signs @ grid.sum(axis=1).astype(signs.dtype)).astype(np.float64)

    def sum_total(self, at: float) -> FloatArray:
        """The whole grid's sum in each flip."""
        total = self._of_change[1]
        return total - at * self._of_cases[0] if at else total

    def sum_squares(self, at: float) -> FloatArray:
        """Sum over the other kind of task of its squared sums, in each flip."""
        squared = self._of_change[2]
        if not at:
            return squared
        _, mixed, counted = self._of_cases
        squares: FloatArray = squared - 2 * at * mixed + at**2 * counted
        return squares


def _sum_column_products(one: Signs, other: Signs) -> FloatArray:
    product: FloatArray = np.einsum("ij,ij->j", one, other).astype(np.float64)
    return product


@dataclass(frozen=True)
class FlipReference:
    """The statistic under flips of one kind of task."""

    value: float
    """The observed difference."""
    suites: Sequence[FlippedSums]
    weights: Sequence[float]
    """What one case of each suite weighs."""
    both: bool
    """Whether the other kind of task has a share in the error: some suite has several."""
    complete: bool
    """Whether the flips are all there are, the observed one included."""

    def compute_p(self, at: float) -> float:
        """Share of flips at least as far from `at`, in their own standard errors, as the observed difference."""
        total, observed, flipped = np.zeros(len(self.suites[0].signs)), 0.0, np.zeros(1)
        for suite, weight in zip(self.suites, self.weights, strict=True):
            cells = weight * (suite.change - at * suite.cases)
            own, other, single = (
                float((sums**2).sum()) for sums in (cells.sum(axis=1), cells.sum(axis=0), cells)
            )
            # Variance: own + other - single, at least that of either kind of task alone.
            spare = max(own - single, 0.0)
            observed += max(other + spare, own) if self.both else own
            flipped = flipped + (
                np.maximum(weight**2 * suite.sum_squares(at) + spare, own) if self.both else own
            )
            total += weight * suite.sum_total(at)
        reached = total**2 * observed
        count = int(np.count_nonzero(reached >= _SLACK * (self.value - at) ** 2 * flipped))
        return count / len(total) if self.complete else (1 + count) / (len(total) + 1)


@dataclass(frozen=True)
class PairedGrid:
    """One suite's cases under two defenses, on the grid of user tasks and injection tasks."""

    before: Tally
    """The cases that both have, as counted under the baseline."""
    after: Tally
    """The same under the defense."""
    side: Side
    draws: SignDraws

    @cached_property
    def change(self) -> FloatArray:
        """Hits that the defense has more; shape (U, I)."""
        return self.after.get_hits(self.side) - self.before.get_hits(self.side)

    @cached_property
    def spread(self) -> Spread:
        """Spread of the difference over tasks; the same at every level, but for its share."""
        return make_spread(self.change, self.after)

    @cached_property
    def flips(self) -> Mapping[str, FlippedSums]:
        """Kind of task -> its signs drawn; the same at every level that the suite is part of."""
        return {
            kind: FlippedSums(self.draws.draw_signs(self.after.suite, kind, tasks), *self.turn(kind))
            for kind, tasks in (("user", self.after.user_tasks), ("injection", self.after.injection_tasks))
        }

    def turn(self, kind: str) -> tuple[FloatArray, FloatArray]:
        """Change and cases with one kind of task along the rows."""
        user = kind == "user"
        return (self.change, self.after.cases) if user else (self.change.T, self.after.cases.T)


@dataclass(frozen=True)
class Difference:
    """The defense's rate less the baseline's: a weighted mean over suites. In proportions."""

    grids: tuple[PairedGrid, ...]
    shares: tuple[float, ...]
    """What each suite weighs; adds up to 1."""

    @cached_property
    def spreads(self) -> tuple[Spread, ...]:
        """How each suite's tasks carry the difference."""
        both = zip(self.grids, self.shares, strict=True)
        return tuple(scale_spread(grid.spread, share) for grid, share in both)

    @cached_property
    def value(self) -> float:
        """The observed difference."""
        return self.weigh([grid.change for grid in self.grids])

    @property
    def rate_before(self) -> float:
        """The baseline's rate."""
        return self.weigh([grid.before.get_hits(grid.side) for grid in self.grids])

    @property
    def rate_after(self) -> float:
        """The defense's rate."""
        return self.weigh([grid.after.get_hits(grid.side) for grid in self.grids])

    def weigh(self, hits: Sequence[FloatArray]) -> float:
        """Mean over suites of hits per case; of one grid per suite, shape (U, I) each."""
        return math.fsum(
            share * float(grid_hits.sum() / grid.after.n)
            for grid_hits, grid, share in zip(hits, self.grids, self.shares, strict=True)
        )

    @property
    def n(self) -> int:
        """Cases it rests on."""
        return round(sum(grid.after.n for grid in self.grids))

    @property
    def errors(self) -> int:
        """Errored cases among those that were to be counted."""
        return sum(grid.after.errors for grid in self.grids)

    @cached_property
    def error(self) -> StandardError:
        """Its standard error; nan where there is nothing to flip, 0 where all cases differ alike."""
        if not any(self._flippable):
            return StandardError(math.nan, 1.0)
        moments = sum_moments(self.spreads, cautious=True)
        return StandardError(math.sqrt(moments.variance) if moments.variance > NOTHING else 0.0, moments.df)

    @property
    def _flippable(self) -> tuple[bool, bool]:
        """True if some suite has two user tasks or more, and two injection tasks or more."""
        shapes = [grid.change.shape for grid in self.grids]
        return any(users > 1 for users, _ in shapes), any(injections > 1 for _, injections in shapes)

    @cached_property
    def references(self) -> tuple[FlipReference, ...]:
        """References of chance, one by each kind of task that can be flipped."""
        kinds = zip(("user", "injection"), self._flippable, strict=True)
        return tuple(self._make_reference(kind) for kind, flippable in kinds if flippable)

    def _make_reference(self, kind: str) -> FlipReference:
        turned = [grid.turn(kind) for grid in self.grids]
        weights = [share / grid.after.n for grid, share in zip(self.grids, self.shares, strict=True)]
        ends = np.cumsum([len(change) for change, _ in turned])
        complete = bool(ends[-1] <= ENUMERATED)
        if complete:
            signs = np.split(list_sign_patterns(int(ends[-1])), ends[:-1], axis=1)
            suites = [FlippedSums(one, *grid) for one, grid in zip(signs, turned, strict=True)]
        else:
            suites = [grid.flips[kind] for grid in self.grids]
        return FlipReference(self.value, suites, weights, all(self._flippable), complete)


def make_mean_difference(grids: Sequence[PairedGrid]) -> Difference:
    """The unweighted mean of the suites' differences; of a single suite, its own."""
    return _make_difference(grids, [1 / len(grids)] * len(grids))


def make_pooled_difference(grids: Sequence[PairedGrid]) -> Difference:
    """The difference of all cases of all suites together."""
    cases = sum(grid.after.n for grid in grids)
    return _make_difference(grids, [grid.after.n / cases for grid in grids])


def _make_difference(grids: Sequence[PairedGrid], shares: Sequence[float]) -> Difference:
    if len(grids) > 1 and all(len(grid.after.user_tasks) == 1 for grid in grids):
        sides = [grid.before for grid in grids], [grid.after for grid in grids]
        before, after = (stack_suites(side, shares) for side in sides)
        return Difference((replace(grids[0], before=before, after=after),), (1.0,))
    return Difference(tuple(grids), tuple(shares))


def tally_pairs(pairs: Iterable[Pair]) -> tuple[dict[str, Tally], dict[str, Tally]]:
    """Suite -> counts of the baseline's cases, and of the others."""
    before, after = dict[str, Tally](), dict[str, Tally]()
    for suite, of in sorted(group_by(pairs, lambda pair: pair.defense.suite).items()):
        tasks = [(pair.defense.user_task_id, pair.defense.injection_task_id or "") for pair in of]
        errors = sum(pair.defense.status == "error" for pair in of)
        counted = [(*task, *pair.before) for task, pair in zip(tasks, of, strict=True)]
        before[suite] = tally_outcomes(suite, counted)
        counted = [(*task, *pair.after) for task, pair in zip(tasks, of, strict=True)]
        after[suite] = tally_outcomes(suite, counted, errors)
    return before, after


def compare_pairs(pairs: Iterable[Pair], side: Side, draws: SignDraws) -> dict[str, Difference]:
    """The difference of a rate per suite, then `overall`, then `pooled`, on pairs of one model and attack."""
    return make_difference_levels(*tally_pairs(pairs), side, draws)


def make_difference_levels(
    before: Mapping[str, Tally], after: Mapping[str, Tally], side: Side, draws: SignDraws
) -> dict[str, Difference]:
    """The difference per suite, then `overall`, then `pooled`, of counted cases; each is worked out when asked for.

    Args:
        before: Suite -> cases under the baseline.
        after: Likewise, the same cases under the defense.
        side: Which outcome.
        draws: Draws the signs of tasks.
    """
    grids = {suite: PairedGrid(before[suite], tally, side, draws) for suite, tally in after.items()}
    by_suite = {suite: make_mean_difference([grid]) for suite, grid in grids.items()}
    every = list(grids.values())
    return {**by_suite, OVERALL: make_mean_difference(every), POOLED: make_pooled_difference(every)}
