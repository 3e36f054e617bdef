"""p-value and interval of a difference: one test, and the interval that it leaves over.

Sign flips see in how many tasks the defenses differ the same way, and a t test what few tasks can tell
of the size of a difference; each is blind where the other sees. Their p-values are combined. The interval
holds the differences that the test does not reject, so that it leaves out 0 exactly where p < 0.05.

Sources: Y. Liu, J. Xie, "Cauchy combination test", Journal of the American Statistical Association
115(529), 2020; R. G. Newcombe, "Interval estimation for the difference between independent proportions",
Statistics in Medicine 17, 1998 (square-and-add); G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008 (the
same with correlation); E. L. Korn, B. I. Graubard, Survey Methodology 24, 1998 (effective sample size).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from agentsys.analysis.statistics import outcome_grid
from agentsys.analysis.statistics.differences import Difference, SignDraws, make_difference_levels
from agentsys.analysis.statistics.rate_estimates import OVERALL, compute_lone_bound, compute_t_quantile

LEVEL = 1 - outcome_grid.CONFIDENCE / 100
"""A difference is significant below it, and its interval then leaves out 0."""
_UPPER = 1 - LEVEL / 2
_UNINFORMATIVE = 0.9
"""Larger p-values are taken for this one, lest a p of 1 cancel the other of the two."""
_BISECTIONS = 14
_STEP = 1.5
"""Factor between the distances at which the end of an interval is looked for."""
_EQUAL = 1e-12
_DESIGN = 1.05
"""By how much standard errors of rates are widened here; `rate_estimates.MARGIN` is that of rates shown."""
POWER = 0.8
"""Share of runs of a size that would find the smallest difference which that size can tell from none."""
FLOOR = 0.1
"""ASR above which it is the number of tasks that is too low for a test, not the rate."""


def compute_p_value(difference: Difference, at: float = 0.0) -> float:
    """The two-sided p-value of a difference.

    Args:
        difference: Of two defenses on the same cases.
        at: The true difference that is put to the test.

    Returns:
        1 where the observed difference is that one; nan where there is nothing to flip.
    """
    if math.isnan(difference.error.value):
        return math.nan
    if abs(difference.value - at) < _EQUAL:
        return 1.0
    flips = max(reference.compute_p(at) for reference in difference.references)
    error = difference.error
    if error.value <= 0:
        return flips
    standardised = abs(difference.value - at) / error.value
    return _combine_p_values(flips, 2.0 * float(scipy.special.stdtr(error.df, -standardised)))


def compute_difference_interval(difference: Difference) -> outcome_grid.Interval:
    """95% interval; nan where there is nothing to flip. Cut at -1 and 1."""
    if math.isnan(difference.error.value):
        return outcome_grid.Interval(math.nan, math.nan)
    significant = compute_p_value(difference) < LEVEL
    if difference.error.value <= 0:
        return _compute_interval_of_all_alike(difference, significant=significant)
    low, high = (_find_end(difference, side, significant=significant) for side in (-1, 1))
    return outcome_grid.Interval(max(low, -1.0), min(high, 1.0))


def _combine_p_values(*p_values: float) -> float:
    """Cauchy combination: the p-value of the mean of Cauchy quantiles."""
    quantiles = [math.tan(math.pi * (0.5 - min(p, _UNINFORMATIVE))) for p in p_values]
    return math.atan2(1.0, math.fsum(quantiles) / len(quantiles)) / math.pi


def _compute_interval_of_all_alike(difference: Difference, *, significant: bool) -> outcome_grid.Interval:
    """Interval where every case of a suite differs alike and no error can be measured: see `compute_lone_bound`."""
    value, reach = difference.value, compute_lone_bound(difference.spreads)
    low, high = value - reach, value + reach
    if significant:
        # No rule says how near to 0 it may come; that it may not hold 0 is all that the test says.
        low, high = (max(low, value / 100), high) if value > 0 else (low, min(high, value / 100))
    else:
        low, high = min(low, 0.0), max(high, 0.0)
    return outcome_grid.Interval(max(low, -1.0), min(high, 1.0))


def _find_end(difference: Difference, side: int, *, significant: bool) -> float:
    """The lower end (side -1) or the upper one (side 1)."""
    value, error = difference.value, difference.error
    ends = [_find_last_accepted(difference, side, significant=significant)]
    if side * value >= 0:
        # Away from 0 differences are as skewed as the rates themselves; inversion alone is too short.
        ends.append(_square_and_add(difference, side))
    if side * value <= 0 and not significant:
        # Where no case points the other way, inversion would stop at 0: "cannot be worse".
        ends += [value + side * compute_t_quantile(_UPPER, error.df) * error.value, 0.0]
    return max(ends, key=lambda end: side * end)


def _find_last_accepted(difference: Difference, side: int, *, significant: bool) -> float:
    """The difference farthest from the observed one before the first that the test rejects."""
    accepted, rejected = difference.value, 0.0
    if side * difference.value >= 0 or not significant:
        distance = difference.error.value
        while True:
            rejected = side * min(side * difference.value + distance, 1.0)
            if compute_p_value(difference, rejected) < LEVEL:
                break
            accepted, distance = rejected, distance * _STEP
            if side * rejected >= 1.0:
                return rejected
    for _ in range(_BISECTIONS):
        middle = (accepted + rejected) / 2
        if compute_p_value(difference, middle) < LEVEL:
            rejected = middle
        else:
            accepted = middle
    return accepted


class _Rate(NamedTuple):
    value: float
    moments: outcome_grid.Moments
    interval: outcome_grid.Interval


def _square_and_add(difference: Difference, side: int) -> float:
    """End of an interval made of the intervals of both rates and of their correlation."""
    before, after = (_make_rate(difference, after=after) for after in (False, True))
    variances = [rate.moments.variance for rate in (before, after)]
    shared = sum(variances) - difference.error.value**2
    scale = 2 * math.sqrt(math.prod(variances))
    correlation = max(-1.0, min(1.0, shared / scale)) if scale > 0 else 0.0
    if side > 0:
        gained, lost = after.interval.high - after.value, before.value - before.interval.low
    else:
        gained, lost = after.value - after.interval.low, before.interval.high - before.value
    square = gained**2 + lost**2 - 2 * correlation * gained * lost
    return difference.value + side * math.sqrt(max(square, 0.0))


def _make_rate(difference: Difference, *, after: bool) -> _Rate:
    """A rate with Wilson's interval on as many cases as would be worth these, were they independent."""
    sides = [(grid.after if after else grid.before) for grid in difference.grids]
    hits = [side.get_hits(grid.side) for side, grid in zip(sides, difference.grids, strict=True)]
    value = difference.weigh(hits)
    parts = list(zip(hits, sides, difference.shares, strict=True))
    moments = outcome_grid.sum_moments(
        [outcome_grid.scale_spread(outcome_grid.make_spread(one, side), share) for one, side, share in parts],
        cautious=True,
    )
    if not _EQUAL < value < 1 - _EQUAL:
        return _Rate(value, moments, outcome_grid.Interval(value, value))
    binomial = value * (1 - value)
    alone = binomial * math.fsum(share**2 / side.n for _, side, share in parts)
    cases = binomial / max(_DESIGN**2 * moments.variance, alone)
    t = compute_t_quantile(_UPPER, moments.df)
    shift = t**2 / cases
    reach = t * math.sqrt((binomial + shift / 4) / cases)
    ends = [(value + shift / 2 + sign * reach) / (1 + shift) for sign in (-1, 1)]
    return _Rate(value, moments, outcome_grid.Interval(*ends))


def compute_smallest_detectable(difference: Difference) -> float:
    """The true difference that a run of this size finds with 80% power at the 5% level, two-sided.

    Returns:
        As a proportion: (t(97.5%) + t(80%)) times the standard error of the paired difference: of the t test
        alone, so that where all cases differ the same way sign flips find less. Where no case differed that
        error is unknown, and the bound on how many may (`compute_lone_bound`) stands in. nan where there is
        nothing to flip.
    """
    error = difference.error
    if math.isnan(error.value):
        return math.nan
    if error.value <= 0:
        return compute_lone_bound(difference.spreads)
    return min(
        (compute_t_quantile(1 - LEVEL / 2, error.df) + compute_t_quantile(POWER, error.df)) * error.value, 1.0
    )


def list_levels_at_the_floor(undefended: Mapping[str, outcome_grid.Tally], draws: SignDraws) -> list[str]:
    """List the levels at which a defense that stops every attack could not be told from none.

    Args:
        undefended: Suite -> attacked cases of one model and attack without defense.
        draws: Draws the signs of tasks.

    Returns:
        `overall` and suites in which the ASR is below `FLOOR` and the test of `agentsys compare` has
        p >= 0.05 between it and 0 in every case.
    """
    counted = {suite: tally for suite, tally in undefended.items() if tally.n}
    rates = {suite: float(tally.hijacked.sum() / tally.n) for suite, tally in counted.items()}
    low = [suite for suite, rate in rates.items() if rate < FLOOR]
    if rates and math.fsum(rates.values()) / len(rates) < FLOOR:
        low.insert(0, OVERALL)
    if not low:
        return []
    none = {suite: replace(tally, hijacked=np.zeros_like(tally.cases)) for suite, tally in counted.items()}
    levels = make_difference_levels(none, counted, outcome_grid.Side.INJECTED, draws)
    return [level for level in low if compute_p_value(levels[level]) >= LEVEL]
