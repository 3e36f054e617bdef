"""Rates with standard errors and intervals that hold for few tasks.

The pigeonhole bootstrap counts the variance inside cells three times and forgets that few tasks tell
little about the spread between tasks: a factor corrects its spread, and the interval is Student's t on the
logit scale. What was tried and how often each interval covers: docs/statistics.md.

A suite with a single user task leaves nothing to draw from. Where that is so in every suite, the suites are
drawn in the place of user tasks, each with all its cases (a one-stage cluster bootstrap); injection tasks
are not drawn besides, as a suite brings its own. Source: A. C. Davison, D. V. Hinkley, "Bootstrap Methods
and their Application", 1997, section 3.8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
import scipy

from agentsys.analysis.statistics.outcome_grid import (
    CONFIDENCE,
    Bounds,
    FloatArray,
    Interval,
    Resampler,
    Side,
    Spread,
    Tally,
    add_spreads,
    bound_rate,
    compute_lone_moments,
    make_spread,
    scale_spread,
    stack_suites,
    sum_moments,
)

OVERALL = "overall"
"""Level of a rate: the unweighted mean of the suites."""
POOLED = "pooled"
"""Level of a rate: all cases of all suites together."""


@dataclass(frozen=True)
class Estimate:
    """A proportion; nan where undefined."""

    value: float
    draws: FloatArray
    """Shape (replicates,)."""
    n: int
    """Cases it rests on."""
    errors: int
    """Errored cases among those that were to be counted."""
    spreads: tuple[Spread, ...] = ()
    """One per suite, in the order of the suites; a single one where suites are drawn."""


UNDEFINED = Estimate(math.nan, np.full(1, np.nan), 0, 0)
"""What no case supports; its draws go with any number of replicates."""


@dataclass(frozen=True)
class _SuiteTotals:
    """One suite's successes and cases, as counted and in each replicate."""

    counted: Tally
    side: Side
    resampler: Resampler

    @cached_property
    def spread(self) -> Spread:
        return make_spread(self.counted.get_hits(self.side), self.counted)

    @cached_property
    def draws(self) -> tuple[FloatArray, FloatArray]:
        """Successes and cases in each replicate, shape (replicates,) both."""
        grids = self.counted.get_hits(self.side), self.counted.cases
        hits, cases = (self.resampler.compute_totals(grid, self.counted) for grid in grids)
        return hits, cases

    @cached_property
    def rate(self) -> Estimate:
        return _estimate_pooled([self])


def estimate_rate_levels(
    suites: Mapping[str, Tally], side: Side, resampler: Resampler, *, pooled: bool = True
) -> dict[str, Estimate]:
    """The rate of each suite, then `overall`, then, if wanted, `pooled`."""
    parts = _make_suite_totals(suites.values(), side, resampler)
    rates = {name: part.rate for name, part in zip(suites, parts, strict=True)}
    overall = _average(parts, list(rates.values()))
    return {**rates, OVERALL: overall, **({POOLED: _estimate_pooled(parts)} if pooled else {})}


def bound_rate_levels(suites: Mapping[str, Tally], side: Side) -> dict[str, Bounds]:
    """The bounds of each suite's rate, then those of `overall` and `pooled`."""
    bounds = {name: bound_rate([one], side) for name, one in suites.items()}
    low, high, undecided = (sum(of) for of in zip(*bounds.values(), strict=True))
    overall = Bounds(low / len(bounds), high / len(bounds), undecided)
    return {**bounds, OVERALL: overall, POOLED: bound_rate(list(suites.values()), side)}


def estimate_pooled_rate(suites: Iterable[Tally], side: Side, resampler: Resampler) -> Estimate:
    """Successes over cases, of one suite or several; nan without a case."""
    return _estimate_pooled(_make_suite_totals(suites, side, resampler))


def estimate_mean_rate(suites: Iterable[Tally], side: Side, resampler: Resampler) -> Estimate:
    """The unweighted mean of the suites: the paper's Overall. nan if a suite is undefined.

    Equals the paper's Table 2 on the published gpt-4o-mini runs.
    """
    parts = _make_suite_totals(suites, side, resampler)
    return _average(parts, [part.rate for part in parts])


def _make_suite_totals(suites: Iterable[Tally], side: Side, resampler: Resampler) -> list[_SuiteTotals]:
    parts = []
    for one in suites:
        grids = one.cases.tobytes(), one.get_hits(side).tobytes()
        key = (side, one.suite, one.user_tasks, one.injection_tasks, *grids, one.errors)
        parts.append(resampler.made.setdefault(key, _SuiteTotals(one, side, resampler)))
    return parts


def _estimate_pooled(parts: Sequence[_SuiteTotals]) -> Estimate:
    """Estimate successes over cases of all suites together; a suite's spread is scaled by its share of the cases."""
    cases = sum(part.counted.n for part in parts)
    errors = sum(part.counted.errors for part in parts)
    if not cases:
        return replace(UNDEFINED, errors=errors)
    value = sum(float(part.counted.get_hits(part.side).sum()) for part in parts) / cases
    shares = [part.counted.n / cases for part in parts]
    if _has_single_tasks(parts):  # The replicates draw suites, not tasks: one part holds them all.
        parts, shares = [_stack_totals(parts, shares)], [1.0]
    # Sums over the suites, per replicate; a replicate that drew no case is nan.
    hits, totals = (reduce(np.add, grids) for grids in zip(*(part.draws for part in parts), strict=True))
    draws = np.divide(hits, totals, out=np.full_like(hits, np.nan), where=totals > 0)
    spreads = (scale_spread(part.spread, share) for part, share in zip(parts, shares, strict=True))
    return Estimate(value, draws, int(cases), errors, tuple(spreads))


def _average(parts: Sequence[_SuiteTotals], suites: Sequence[Estimate]) -> Estimate:
    """Estimate the unweighted mean of the suites."""
    share = 1 / len(parts)
    value = float(np.mean([suite.value for suite in suites]))
    n, errors = sum(suite.n for suite in suites), sum(suite.errors for suite in suites)
    if not all(suite.n for suite in suites):
        return Estimate(value, UNDEFINED.draws, n, errors)
    if _has_single_tasks(parts):
        stacked = _estimate_pooled([_stack_totals(parts, [share] * len(parts))])
        return Estimate(value, stacked.draws, n, errors, stacked.spreads)
    draws = np.mean([suite.draws for suite in suites], axis=0)
    return Estimate(value, draws, n, errors, tuple(scale_spread(part.spread, share) for part in parts))


def _has_single_tasks(parts: Sequence[_SuiteTotals]) -> bool:
    """True if several suites have a single user task each, so that suites are drawn."""
    return len(parts) > 1 and all(len(part.counted.user_tasks) <= 1 for part in parts)


def _stack_totals(parts: Sequence[_SuiteTotals], shares: Sequence[float]) -> _SuiteTotals:
    return replace(parts[0], counted=stack_suites([part.counted for part in parts], shares))


def compute_defense_quality(benign: Estimate, asr: Estimate) -> Estimate:
    """Benign utility x (1 - targeted ASR), at whatever level the two are given.

    Overall is the product of the two overall rates, not the mean of the suites' products: the paper's
    Figure 3(b) prints 44.06 = 63.54 x (1 - 0.3066) for gpt-4o-mini; the mean of products is 44.20.
    """
    return Estimate(
        value=benign.value * (1 - asr.value),
        draws=benign.draws * (1 - asr.draws),
        n=benign.n + asr.n,
        errors=benign.errors + asr.errors,
        spreads=tuple(
            add_spreads(scale_spread(attacked, -benign.value), scale_spread(solved, 1 - asr.value))
            for attacked, solved in zip(asr.spreads, benign.spreads, strict=False)
        ),
    )


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


def estimate_standard_error(estimate: Estimate) -> StandardError:
    """The standard deviation of the replicates, corrected."""
    missing = np.isnan(estimate.draws)
    drawn = estimate.draws[~missing] if missing.any() else estimate.draws  # as a rule a copy is spared
    if not len(drawn) or math.isnan(estimate.value):
        return StandardError(math.nan, 1.0)
    moments = sum_moments(estimate.spreads)
    if moments.variance < NOTHING:
        return StandardError(0.0, 1.0)
    factor = MARGIN * math.sqrt(moments.variance / moments.bootstrap_variance)
    return StandardError(float(drawn.std()) * factor, moments.df)


def compute_t_quantile(share: float, df: float) -> float:
    """Quantile of Student's t.

    Args:
        share: Between 0 and 1.
        df: Degrees of freedom, positive, not necessarily whole.
    """
    return float(scipy.special.stdtrit(df, share))


def compute_proportion_interval(estimate: Estimate, upper: float = UPPER) -> Interval:
    """Interval of a proportion: Student's t on the logit scale, so that it ends within 0 and 1.

    Where all cases came out alike, see `compute_lone_bound`. nan where there is nothing to resample.

    Args:
        estimate: The proportion.
        upper: Where the upper bound stands among the t distribution's quantiles: 97.5% in a 95% interval.
    """
    error = estimate_standard_error(estimate)
    if math.isnan(error.value):
        return Interval(math.nan, math.nan)
    if error.value > 0 and 0 < estimate.value < 1:
        return _compute_interval_on_logit_scale(
            estimate.value, compute_t_quantile(upper, error.df) * error.value
        )
    if 0 < estimate.value < 1:
        # Every suite is of one piece, but not of the same one.
        least = compute_lone_moments(estimate.spreads)
        return _compute_interval_on_logit_scale(
            estimate.value, compute_t_quantile(upper, least.df) * math.sqrt(least.variance)
        )
    bound = compute_lone_bound(estimate.spreads, upper)
    return Interval(0.0, bound) if estimate.value <= 0 else Interval(1.0 - bound, 1.0)


def compute_lone_bound(spreads: Sequence[Spread], upper: float = UPPER) -> float:
    """Bound a rate of which no case was found: the smaller of two bounds.

    The upper end of the interval that a single success (one in each suite) would have had; and the
    exact binomial bound for as many independent cases as there are tasks of the more numerous kind.
    """
    clusters = sum(max(len(part.users), len(part.injections)) for part in spreads)
    exact = 1.0 - math.pow(1.0 - upper, 1.0 / clusters)
    least = compute_lone_moments(spreads)
    centre = min(sum(part.lone for part in spreads), 0.5)
    if not centre:
        return exact
    reach = compute_t_quantile(upper, least.df) * math.sqrt(least.variance)
    return min(exact, _compute_interval_on_logit_scale(centre, reach).high)


def _compute_interval_on_logit_scale(centre: float, reach: float) -> Interval:
    middle, half = scipy.special.logit(centre), reach / (centre * (1 - centre))
    return Interval(float(scipy.special.expit(middle - half)), float(scipy.special.expit(middle + half)))
