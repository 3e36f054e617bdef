"""Small grids of two defenses' outcomes, from the difference in each cell."""

from __future__ import annotations

import numpy as np

from agentsys.analysis.statistics.differences import (
    SIGN_DRAWS,
    Difference,
    PairedGrid,
    SignDraws,
    make_mean_difference,
)
from agentsys.analysis.statistics.outcome_grid import FloatArray, Side, Tally


def tally_of(hits: FloatArray, cases: FloatArray | None = None, suite: str = "suite") -> Tally:
    """A suite whose cases, one per cell by default, have these hits of either kind; shape (U, I)."""
    users, injections = (tuple(f"{task:02d}" for task in range(count)) for count in hits.shape)
    return Tally(suite, users, injections, np.ones_like(hits) if cases is None else cases, hits, hits, 0)


def grid_of(
    change: FloatArray,
    cases: FloatArray | None = None,
    *,
    suite: str = "suite",
    draws: int = SIGN_DRAWS,
    seed: int = 0,
) -> PairedGrid:
    """A suite in which the defense has `change` more hits than the baseline.

    Args:
        change: Shape (U, I); hits of the defense less those of the baseline.
        cases: Shape (U, I); one per cell by default.
        suite: The suite's name.
        draws: Sign flips.
        seed: Of the flips.
    """
    before, after = np.maximum(-change, 0.0), np.maximum(change, 0.0)
    first, second = (tally_of(hits, cases, suite) for hits in (before, after))
    return PairedGrid(first, second, Side.SOLVED, SignDraws(draws, seed))


def difference_of(
    change: FloatArray, cases: FloatArray | None = None, *, draws: int = SIGN_DRAWS, seed: int = 0
) -> Difference:
    """The difference in one such suite."""
    return make_mean_difference([grid_of(change, cases, draws=draws, seed=seed)])
