"""Standard errors and intervals that hold for few tasks: the bootstrap's spread, corrected, and Student's t.

The pigeonhole bootstrap counts the variance inside cells three times and forgets that few tasks tell
little about the spread between tasks. Both are put right by a factor (`variance`).
What was tried and how often each interval covers: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from agentsys.analysis.statistics.bootstrap import CONFIDENCE, Interval
from agentsys.analysis.statistics.estimate import Estimate
from agentsys.analysis.statistics.variance import Spread, lone_moments, moments

UPPER = 1 - (100.0 - CONFIDENCE) / 200.0
"""Where the upper bound stands among the t distribution's quantiles."""

MARGIN = 1.1
"""Standard errors are made a tenth wider. Without it intervals cover 95% on average, and a little less
where rates are low or effects strong; with it 94% at worst and 96 to 98% as a rule."""

NOTHING = 1e-20
"""Variance below which all cases came out alike, up to rounding; one case in 10^6 would cause 1e-12."""


class StandardError(NamedTuple):
    """Standard error of an estimate."""

    value: float
    """As a proportion; nan where there is nothing to resample, 0 where all cases came out alike."""
    df: float
    """Degrees of freedom of Student's t."""


def standard_error(estimate: Estimate) -> StandardError:
    """The standard deviation of the replicates, corrected.

    Args:
        estimate: A rate or a product of rates.
    """
    missing = np.isnan(estimate.draws)
    drawn = estimate.draws[~missing] if missing.any() else estimate.draws  # as a rule a copy is spared
    if not len(drawn) or math.isnan(estimate.value):
        return StandardError(math.nan, 1.0)
    found = moments(estimate.spreads)
    if found.variance < NOTHING:
        return StandardError(0.0, 1.0)
    factor = MARGIN * math.sqrt(found.variance / found.bootstrap_variance)
    return StandardError(float(drawn.std()) * factor, found.df)


def t_quantile(share: float, df: float) -> float:
    """Quantile of Student's t.

    Args:
        share: Between 0 and 1.
        df: Degrees of freedom, positive, not necessarily whole.
    """
    return float(scipy.special.stdtrit(df, share))


def proportion_interval(estimate: Estimate, upper: float = UPPER) -> Interval:
    """Interval of a proportion: Student's t on the logit scale, so that it ends within 0 and 1.

    Where all cases came out alike, see `lone_bound`. nan where there is nothing to resample.

    Args:
        estimate: The proportion.
        upper: Where the upper bound stands among the t distribution's quantiles: 97.5% in a 95% interval.
    """
    error = standard_error(estimate)
    if math.isnan(error.value):
        return Interval(math.nan, math.nan)
    if error.value > 0 and 0 < estimate.value < 1:
        return _on_logit_scale(estimate.value, t_quantile(upper, error.df) * error.value)
    if 0 < estimate.value < 1:
        # Every suite is of one piece, but not of the same one.
        least = lone_moments(estimate.spreads)
        return _on_logit_scale(estimate.value, t_quantile(upper, least.df) * math.sqrt(least.variance))
    bound = lone_bound(estimate.spreads, upper)
    return Interval(0.0, bound) if estimate.value <= 0 else Interval(1.0 - bound, 1.0)


def lone_bound(spreads: Sequence[Spread], upper: float = UPPER) -> float:
    """Bound a rate of which no case was found: the smaller of two bounds.

    The upper end of the interval that a single success (one in each suite) would have had; and the
    exact binomial bound for as many independent cases as there are tasks of the more numerous kind.
    """
    clusters = sum(max(len(part.users), len(part.injections)) for part in spreads)
    exact = 1.0 - math.pow(1.0 - upper, 1.0 / clusters)
    least = lone_moments(spreads)
    centre = min(sum(part.lone for part in spreads), 0.5)
    if not centre:
        return exact
    reach = t_quantile(upper, least.df) * math.sqrt(least.variance)
    return min(exact, _on_logit_scale(centre, reach).high)


def _on_logit_scale(centre: float, reach: float) -> Interval:
    middle, half = scipy.special.logit(centre), reach / (centre * (1 - centre))
    return Interval(float(scipy.special.expit(middle - half)), float(scipy.special.expit(middle + half)))
