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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from agentsys.analysis.statistics.outcome_grid import (
    CONFIDENCE,
    FloatArray,
    Interval,
    Resampler,
    Side,
    Spread,
    Tally,
    add_spreads,
    lone_moments,
    scale_spread,
    spread_of,
    sum_moments,
)

OVERALL = "overall"
"""Level of a rate: the unweighted mean of the suites."""
POOLED = "pooled"
"""Level of a rate: all cases of all suites together."""


@dataclass(frozen=True)
class SingleTaskSuite:
    """A suite with a single user task."""

    suite: str
    hits: float
    cases: float
    cells: int
    """Injection tasks with a case (1 for benign cases)."""
    resampler: Resampler


@dataclass(frozen=True)
class SuiteTotals:
    """Successes and cases, as counted and in each replicate (arrays of shape (replicates,))."""

    hits: float
    cases: float
    hit_draws: FloatArray
    case_draws: FloatArray
    errors: int
    spread: Spread
    """Of the rate `hits / cases`."""
    lone: SingleTaskSuite | None = None
    """Set where the suite has a single user task."""


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
    lone: SingleTaskSuite | None = None
    """Set for the rate of one suite that has a single user task."""


def suite_totals(
    counted: Tally, side: Side, resampler: Resampler, frame: tuple[str, ...] | None = None
) -> SuiteTotals:
    """One suite's totals."""
    grid = counted.hits(side)
    hits, cases = float(grid.sum()), float(counted.cases.sum())
    lone = None
    if len(frame or counted.user_tasks) <= 1:
        cells = int(np.count_nonzero(counted.cases))
        lone = SingleTaskSuite(counted.suite, hits, cases, cells, resampler)
    return SuiteTotals(
        hits,
        cases,
        hit_draws=resampler.totals(grid, counted, frame),
        case_draws=resampler.totals(counted.cases, counted, frame),
        errors=counted.errors,
        spread=spread_of(grid, counted, frame),
        lone=lone,
    )


def pooled_rate(parts: Sequence[SuiteTotals]) -> Estimate:
    """Successes over cases: a suite's rate for one part, the pooled rate for several.

    Where several suites have a single user task each, suites are drawn (`single_task_suites`).
    """
    cases = sum(part.cases for part in parts)
    value = sum(part.hits for part in parts) / cases if cases else float("nan")
    errors, lone = sum(part.errors for part in parts), [part.lone for part in parts if part.lone]
    if len(parts) > 1 and len(lone) == len(parts) and cases:
        return Estimate(value, pooled_draws(lone), int(cases), errors, (pooled_spread(lone),))
    hits, drawn = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("hit_draws", "case_draws")
    )
    draws = np.divide(hits, drawn, out=np.full_like(hits, np.nan), where=drawn > 0)
    spreads = tuple(scale_spread(part.spread, part.cases / cases if cases else 0.0) for part in parts)
    return Estimate(value, draws, int(cases), errors, spreads, lone[0] if len(parts) == 1 and lone else None)


def suite_rate(counted: Tally, side: Side, resampler: Resampler) -> Estimate:
    """One suite's rate."""
    return pooled_rate([suite_totals(counted, side, resampler)])


def mean_rate(suites: Sequence[Estimate]) -> Estimate:
    """The unweighted mean of the suites: the paper's Overall. nan if a suite is undefined.

    Where several suites have a single user task each, suites are drawn (`single_task_suites`).

    Equals the paper's Table 2 on the published gpt-4o-mini runs.
    """
    value = float(np.mean([suite.value for suite in suites]))
    n, errors = sum(suite.n for suite in suites), sum(suite.errors for suite in suites)
    lone = [suite.lone for suite in suites if suite.lone and suite.lone.cases]
    if len(suites) > 1 and len(lone) == len(suites):
        return Estimate(value, macro_draws(lone), n, errors, (macro_spread(lone),))
    return Estimate(
        value=value,
        draws=np.mean([suite.draws for suite in suites], axis=0),
        n=n,
        errors=errors,
        spreads=tuple(scale_spread(part, 1 / len(suites)) for suite in suites for part in suite.spreads),
    )


def rate_levels(
    suites: Mapping[str, Tally],
    side: Side,
    resampler: Resampler,
    frames: Mapping[str, tuple[str, ...]] | None = None,
    *,
    pooled: bool = True,
) -> dict[str, Estimate]:
    """The rate of each suite, then `overall`, then, if wanted, `pooled`."""
    parts = {name: suite_totals(of, side, resampler, (frames or {}).get(name)) for name, of in suites.items()}
    rates = {name: pooled_rate([part]) for name, part in parts.items()}
    overall = {OVERALL: mean_rate(list(rates.values()))}
    return {**rates, **overall, **({POOLED: pooled_rate(list(parts.values()))} if pooled else {})}


def defense_quality(benign: Estimate, asr: Estimate) -> Estimate:
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


def undefined_rate(replicates: int) -> Estimate:
    """An estimate that no case supports."""
    return Estimate(float("nan"), np.full(replicates, np.nan), 0, 0)


def macro_draws(suites: Sequence[SingleTaskSuite]) -> FloatArray:
    """Replicates of the unweighted mean of the suites' rates; shape (replicates,)."""
    rates = np.array([suite.hits / suite.cases if suite.cases else np.nan for suite in suites])
    draws: FloatArray = _weights(suites) @ rates / len(suites)
    return draws


def pooled_draws(suites: Sequence[SingleTaskSuite]) -> FloatArray:
    """Replicates of all successes over all cases; nan where none of the suites drawn has a case."""
    weights = _weights(suites)
    hits = weights @ np.array([suite.hits for suite in suites])
    cases = weights @ np.array([suite.cases for suite in suites])
    draws: FloatArray = np.divide(hits, cases, out=np.full_like(hits, np.nan), where=cases > 0)
    return draws


def macro_spread(suites: Sequence[SingleTaskSuite]) -> Spread:
    """Spread of the suites' unweighted mean. Every suite must have a case."""
    rates = np.array([suite.hits / suite.cases for suite in suites])
    return _spread_of_suites((rates - rates.mean()) / len(suites), suites)


def pooled_spread(suites: Sequence[SingleTaskSuite]) -> Spread:
    """Spread of the rate of all cases together. Some suite must have a case."""
    hits, cases = (np.array([getattr(suite, name) for suite in suites]) for name in ("hits", "cases"))
    return _spread_of_suites((hits - hits.sum() / cases.sum() * cases) / cases.sum(), suites)


def _weights(suites: Sequence[SingleTaskSuite]) -> FloatArray:
    """Draw suites: how often each; the same for the same suites, whatever is measured on them."""
    names = [suite.suite for suite in suites]
    order = sorted(range(len(names)), key=names.__getitem__)
    drawn = suites[0].resampler.weights("", "suite", tuple(names[at] for at in order))
    weights = np.empty_like(drawn)
    weights[:, order] = drawn
    return weights


def _spread_of_suites(influence: FloatArray, suites: Sequence[SingleTaskSuite]) -> Spread:
    # One more success in each suite, as where user tasks are drawn: what could have been seen at least.
    lone = np.array([1 / (len(suites) * max(suite.cells, 1)) for suite in suites])
    return Spread(influence, np.zeros(1), 0.0, 1.0, 0.0, float(lone.sum()), float((lone**2).sum()))


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
    found = sum_moments(estimate.spreads)
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
