"""Power of a run: the smallest difference its number of cases can tell from none."""

from __future__ import annotations

import math

from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.statistics.estimate import Estimate
from agentsys.analysis.statistics.intervals import lone_bound, standard_error, t_quantile

POWER = 0.8
"""Share of runs of this size that would find the smallest detectable difference."""


def smallest_detectable(difference: Estimate) -> float:
    """The true difference that a run of this size finds with 80% power at the 5% level, two-sided.

    Args:
        difference: The paired difference of two defenses.

    Returns:
        As a proportion: (t(97.5%) + t(80%)) times the clustered standard error of the paired
        difference. Where no case differed that error is unknown, and the bound on how many may
        (`lone_bound`) stands in. nan where there is nothing to resample.
    """
    error = standard_error(difference)
    if math.isnan(error.value):
        return math.nan
    if error.value <= 0:
        return lone_bound(difference)
    level = 1 - (100.0 - CONFIDENCE) / 200.0
    return min((t_quantile(level, error.df) + t_quantile(POWER, error.df)) * error.value, 1.0)
