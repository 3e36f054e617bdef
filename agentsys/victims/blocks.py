"""`fitted_block`: outcomes by named levels -> a `LogitBlock` whose mean is right in each suite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from agentsys.grouping import grouped
from agentsys.models.simulated.victim.predict import linear, logistic
from agentsys.models.simulated.victim.profile import LogitBlock
from agentsys.victims.mixed_logit import FloatArray, LogitData, fitted_logit

_LEAST = 0.25
"""Cases that a suite at 0 or 100% is taken to be short of it: no finite offset gives 0 or 100%."""
_MOST_OFFSET = 3.0
"""Where it was: there the rate says no more than that it is far away."""
_BRACKET = 90.0
_DIGITS = 3


@dataclass(frozen=True)
class Point:
    """One outcome."""

    outcome: bool
    levels: Mapping[str, str]
    """Factor -> level, the factors in one order throughout; offsets are by the first."""
    covariates: Mapping[str, float] = field(default_factory=dict)


def fitted_block(points: Sequence[Point], sds: Mapping[str, float] | None = None) -> LogitBlock:
    """Fit a block to at least one point and solve its offsets; known standard deviations are kept."""
    factors = list(points[0].levels)
    names = list(points[0].covariates)
    table = np.array([[p.covariates[name] for name in names] for p in points]).reshape(len(points), -1)
    centre, spread = table.mean(axis=0), table.std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    known = {factor: sorted({p.levels[factor] for p in points}) for factor in factors}
    data = LogitData(
        np.array([float(p.outcome) for p in points]),
        (table - centre) / spread,
        [np.searchsorted(known[factor], [p.levels[factor] for p in points]) for factor in factors],
        [len(known[factor]) for factor in factors],
    )
    fit = fitted_logit(data, None if sds is None else np.array([sds[factor] for factor in factors]))
    block = LogitBlock(
        sd=_named(factors, fit.sds),
        fixed=_named(["intercept", *names], fit.fixed),
        standardise={name: (_short(a), _short(b)) for name, a, b in zip(names, centre, spread, strict=True)},
        effects={
            factor: {
                level: (_short(effect), _short(error))
                for level, effect, error in zip(known[factor], effects, errors, strict=True)
            }
            for factor, effects, errors in zip(factors, fit.effects, fit.errors, strict=True)
        },
    )
    return calibrated(block, points)


def _named(names: Sequence[str], values: FloatArray) -> dict[str, float]:
    return {name: _short(value) for name, value in zip(names, values, strict=True)}


def _short(value: float) -> float:
    return round(float(value), _DIGITS)


def calibrated(block: LogitBlock, points: Sequence[Point]) -> LogitBlock:
    """The block with offsets that make the mean forecast of each level of the first factor its observed rate.

    Shrinkage alone makes totals of rare events several points too high.
    """
    first = next(iter(block.sd))
    groups = grouped(points, lambda point: point.levels[first])
    offset = {level: round(_offset(block, group), 4) for level, group in sorted(groups.items())}
    return block.model_copy(update={"offset": offset})


def _offset(block: LogitBlock, points: Sequence[Point]) -> float:
    parts = [linear(block, p.levels, p.covariates) for p in points]
    shrink = [1.0 / math.sqrt(1.0 + math.pi * variance / 8.0) for _, variance in parts]
    seen = sum(p.outcome for p in points)
    hits = min(max(seen, _LEAST), len(points) - _LEAST)

    def excess(offset: float) -> float:
        means = ((mean + offset) * by for (mean, _), by in zip(parts, shrink, strict=True))
        return sum(map(logistic, means)) - hits

    offset = float(scipy.optimize.brentq(excess, -_BRACKET, _BRACKET))
    return offset if hits == seen else min(max(offset, -_MOST_OFFSET), _MOST_OFFSET)
