"""Power of a run: the smallest difference its number of cases can tell from none."""

from __future__ import annotations

import math

from agentsys.analysis.statistics.difference import Difference
from agentsys.analysis.statistics.difference_test import LEVEL
from agentsys.analysis.statistics.intervals import lone_bound, t_quantile

POWER = 0.8
"""Share of runs of this size that would find the smallest detectable difference."""


def smallest_detectable(difference: Difference) -> float:
    """The true difference that a run of this size finds with 80% power at the 5% level, two-sided.

    Args:
        difference: The paired difference of two defenses.

    Returns:
        As a proportion: (t(97.5%) + t(80%)) times the standard error of the paired difference: of the t test
        alone, so that where all cases differ the same way sign flips find less. Where no case differed that
        error is unknown, and the bound on how many may (`lone_bound`) stands in. nan where there is
        nothing to flip.
    """
    error = difference.error
    if math.isnan(error.value):
        return math.nan
    if error.value <= 0:
        return lone_bound(difference.spreads)
    return min((t_quantile(1 - LEVEL / 2, error.df) + t_quantile(POWER, error.df)) * error.value, 1.0)
