"""The two-way cluster bootstrap: how far a rate may be off, given that cases share tasks.

Cases of one user task stand or fall together, and so do cases of one injection task. Both sets of
tasks are therefore drawn anew, independently of each other, and a case's weight is the product of
how often its two tasks were drawn.

Source: A. B. Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2), 2007. It does not
underestimate the variance (on balanced grids it counts the variance inside a cell once more per way).
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally

CONFIDENCE = 95.0
"""Percent."""


@dataclass(frozen=True)
class Interval:
    """Bounds in the unit of the values given; nan where undefined."""

    low: float
    high: float


@dataclass(frozen=True)
class Resampler:
    """Draws tasks. The same tasks of a suite get the same draws everywhere.

    So a cell's interval does not depend on what else is in the folder, and benign and attacked cases
    of the same user tasks move together, as they must in the defense quality.
    """

    replicates: int = 2000
    seed: int = 0
    _case_totals: dict[Hashable, FloatArray] = field(default_factory=dict, repr=False)

    def weights(self, suite: str, way: str, tasks: tuple[str, ...]) -> FloatArray:
        """Draw tasks: how often each one.

        Args:
            suite: The suite's name.
            way: `user` or `injection`, drawn independently even where ids coincide.
            tasks: Length k, sorted.

        Returns:
            Shape (replicates, k); each row sums to k. All ones for a single task: nothing to draw from.
        """
        return _drawn(self.replicates, self.seed, (suite, way, *tasks))

    def case_totals(self, counted: Tally, frame: tuple[str, ...] | None = None) -> FloatArray:
        """`resampled_total` of a tally's cases: made once for all defenses that were run on the same ones."""
        tasks = (counted.user_tasks, counted.injection_tasks)
        key = (counted.suite, frame or counted.user_tasks, *tasks, counted.cases.tobytes())
        if key not in self._case_totals:
            self._case_totals[key] = resampled_total(counted.cases, counted, self, frame)
        return self._case_totals[key]


@lru_cache(maxsize=64)  # for all who resample the same suites; most take 0.1 to 0.6 MB each way
def _drawn(replicates: int, seed: int, key: tuple[str, ...]) -> FloatArray:
    count = len(key) - 2
    if count < 2:
        return np.ones((replicates, count))
    generator = generator_of(str(seed), *key)
    return generator.multinomial(count, [1 / count] * count, size=replicates).astype(np.float64)


def generator_of(*key: str) -> np.random.Generator:
    """A generator of random numbers that are the same for the same key everywhere."""
    digest = hashlib.sha256("\0".join(key).encode("utf-8", "replace")).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def resampled_total(
    grid: FloatArray, counted: Tally, resampler: Resampler, frame: tuple[str, ...] | None = None
) -> FloatArray:
    """A grid's total in each replicate.

    Args:
        grid: Shape (U, I), one of the tally's grids.
        counted: The tally, for its task names.
        resampler: Where the weights come from.
        frame: User tasks to draw from, sorted, at least the tally's own; by default exactly those.

    Returns:
        Shape (replicates,); nan where neither way has two tasks to draw from.
    """
    frame = frame or counted.user_tasks
    if not counted.user_tasks:
        return np.zeros(resampler.replicates)
    if len(frame) < 2 and len(counted.injection_tasks) < 2:
        return np.full(resampler.replicates, np.nan)
    by_user = resampler.weights(counted.suite, "user", frame)
    if len(frame) > len(counted.user_tasks):
        place = {task: index for index, task in enumerate(frame)}
        by_user = by_user[:, [place[task] for task in counted.user_tasks]]
    by_injection = resampler.weights(counted.suite, "injection", counted.injection_tasks)
    total: FloatArray = np.einsum("ri,ri->r", by_user @ grid, by_injection)
    return total


def percentile_interval(draws: FloatArray) -> Interval:
    """The central 95% of the replicates that are defined; nan if none is.

    Args:
        draws: Shape (replicates,).
    """
    defined = draws[~np.isnan(draws)]
    if not len(defined):
        return Interval(np.nan, np.nan)
    tail = (100.0 - CONFIDENCE) / 2
    low, high = np.percentile(defined, [tail, 100.0 - tail])
    return Interval(float(low), float(high))
