"""`FlipReference`: how large a difference chance would show, were no defense better on any task.

If neither defense is better, every task could as well have favoured the other one. The sign of a task's
cases is therefore flipped at random, all of them together, in every suite; once by user task, once by
injection task. Each flip is measured in standard errors of its own: flipping one kind of task leaves the
other kind's share of the error unknown, and only an error computed anew accounts for it.

Sources: I. A. Canay, J. P. Romano, A. M. Shaikh, "Randomization tests under an approximate symmetry
assumption", Econometrica 85(3), 2017 (sign changes of few clusters); A. C. Cameron, J. B. Gelbach, D. L.
Miller, "Robust inference with multiway clustering", Journal of Business & Economic Statistics 29(2), 2011
(the two-way error). What was tried and how often the test errs: docs/statistics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agentsys.analysis.statistics.bootstrap import generator_of
from agentsys.analysis.statistics.outcome_grid import FloatArray

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
        generator = generator_of(str(self.seed), "signs", suite, way, *tasks)
        count = self.draws * len(tasks)
        bits = np.unpackbits(np.frombuffer(generator.bytes(-(-count // 8)), np.uint8), count=count)
        return bits.reshape(self.draws, len(tasks)).astype(np.float64) * 2 - 1


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


def flipped_sums(signs: FloatArray, change: FloatArray, cases: FloatArray) -> FlippedSums:
    """Flip a suite's tasks.

    Args:
        signs: Shape (flips, k).
        change: Shape (k, other kind of task): hits of the defense less those of the baseline.
        cases: Shape likewise.
    """
    changed, counted = signs @ change, signs @ cases
    return FlippedSums(changed.sum(axis=1), counted.sum(axis=1), squares(changed, counted))


def squares(change: FloatArray, cases: FloatArray) -> FloatArray:
    """Coefficients of the sum of squares of `change - D * cases` over the last axis, as a function of D.

    Returns:
        Shape (3, ...): of 1, -2D and D^2.
    """
    pairs = ((change, change), (change, cases), (cases, cases))
    return np.stack([np.einsum("...k,...k->...", one, other) for one, other in pairs])


@dataclass(frozen=True)
class FlipReference:
    """What flips of one kind of task make of the statistic. Suites along S, flips along N; proportions."""

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
    found: FloatArray = coefficients[0] - 2 * difference * coefficients[1] + difference**2 * coefficients[2]
    return found
