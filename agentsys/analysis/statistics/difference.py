"""`Difference`: a rate under two defenses on the same cases, with all that its test needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from agentsys.analysis.statistics.estimate import Side
from agentsys.analysis.statistics.intervals import NOTHING, StandardError
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally
from agentsys.analysis.statistics.sign_flips import (
    ENUMERATED,
    FlippedSums,
    FlipReference,
    SignDraws,
    every_pattern,
    flipped_sums,
    squares,
)
from agentsys.analysis.statistics.variance import Spread, cautious_moments, scaled, spread


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
        """What the defense has more; shape (U, I)."""
        return self.after - self.before

    @cached_property
    def spread(self) -> Spread:
        """How the tasks carry the difference; the same at every level, but for its share."""
        return spread(self.change, self.counted)

    @cached_property
    def by_user(self) -> FlippedSums:
        """Sums with the signs of user tasks drawn; the same at every level that the suite is part of."""
        signs = self.draws.signs(self.counted.suite, "user", self.counted.user_tasks)
        return flipped_sums(signs, self.change, self.counted.cases)

    @cached_property
    def by_injection(self) -> FlippedSums:
        """Sums with the signs of injection tasks drawn."""
        signs = self.draws.signs(self.counted.suite, "injection", self.counted.injection_tasks)
        return flipped_sums(signs, self.change.T, self.counted.cases.T)


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
        """What chance makes of it, by each kind of task that can be flipped."""
        by_user, by_injection = self.flippable
        found = [self._by_user(both=by_injection)] if by_user else []
        return (*found, self._by_injection(both=by_user)) if by_injection else tuple(found)

    def _by_user(self, *, both: bool) -> FlipReference:
        grids = [(grid.change, grid.counted.cases) for grid in self.grids]
        sums = _all_patterns(grids) or [grid.by_user for grid in self.grids]
        return self._reference(grids, sums, both=both)

    def _by_injection(self, *, both: bool) -> FlipReference:
        grids = [(grid.change.T, grid.counted.cases.T) for grid in self.grids]
        sums = _all_patterns(grids) or [grid.by_injection for grid in self.grids]
        return self._reference(grids, sums, both=both)

    def _reference(
        self, grids: Sequence[tuple[FloatArray, FloatArray]], sums: Sequence[FlippedSums], *, both: bool
    ) -> FlipReference:
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


def paired_grid(before: Tally, after: Tally, side: Side, draws: SignDraws) -> PairedGrid:
    """Put two defenses' counts of one suite side by side; both must be of the same cases."""
    if side is Side.SOLVED:
        return PairedGrid(after, before.solved, after.solved, draws)
    return PairedGrid(after, before.hijacked, after.hijacked, draws)


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
        return _of_suites(grids, shares)
    spreads = [scaled(grid.spread, share) for grid, share in zip(grids, shares, strict=True)]
    return Difference(tuple(grids), tuple(shares), tuple(spreads))


def _of_suites(grids: Sequence[PairedGrid], shares: Sequence[float]) -> Difference:
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
    whole = spread(after - before, drawn)
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
