"""`recovered`: whether the fit finds a truth again that is known, because outcomes were drawn from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from agentsys.models.simulated.victim.predict import probability
from agentsys.victims.blocks import Point, fitted_block
from agentsys.victims.mixed_logit import FloatArray

SUITE, USER, INJECTION = 1.0, 1.5, 1.0
"""Standard deviations of the truth's effects, on the logit."""
RUNS = 30
_WITHIN = 4.0
_FACTOR = 1.6
_MEAN = -1.2
_RARE = 0.01
_RARE_RUNS = 5
_ROUNDS = 60


@dataclass(frozen=True)
class Recovery:
    """How often, or how well; shares of the synthetic runs unless it says otherwise."""

    runs: int
    within: float
    """Whose forecast of a second run's rate was within four points."""
    user_sd: float
    """Whose standard deviation of user tasks was within a factor of 1.6."""
    injection_sd: float
    brier: float
    """Mean Brier score of the forecast on the second run."""
    ideal: float
    """The same of the truth itself."""
    rare: float
    """Forecast total of truths at one percent, in percent, beside ..."""
    rare_drawn: float
    """... what was drawn of them."""


def recovered(grid: Sequence[Mapping[str, str]], runs: int = RUNS, *, seed: int = 0) -> Recovery:
    """Draw truths on a grid of cases, a run to fit and a second one to forecast.

    Args:
        grid: The levels `suite`, `user` and `injection` of each case.
        runs: Truths to draw.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    told = np.mean([_one(grid, rng) for _ in range(runs)], axis=0)
    rare = np.mean([_rare(grid, rng) for _ in range(_RARE_RUNS)], axis=0)
    return Recovery(runs, *map(float, told), *map(float, rare))


def _one(grid: Sequence[Mapping[str, str]], rng: np.random.Generator) -> tuple[float, ...]:
    truth = _truth(grid, rng)
    first, second = (rng.random(len(grid)) < truth for _ in range(2))
    block = fitted_block([Point(bool(hit), levels) for hit, levels in zip(first, grid, strict=True)])
    forecast = np.array([probability(block, levels, {}) for levels in grid])
    return (
        float(abs(100 * (forecast.mean() - second.mean())) <= _WITHIN),
        float(_near(block.sd["user"], USER)),
        float(_near(block.sd["injection"], INJECTION)),
        float(np.mean((forecast - second) ** 2)),
        float(np.mean((truth - second) ** 2)),
    )


def _rare(grid: Sequence[Mapping[str, str]], rng: np.random.Generator) -> tuple[float, float]:
    """Forecast and drawn rate, percent, of a truth whose mean is one percent."""
    truth = _truth(grid, rng)
    logit = np.log(truth / (1 - truth))
    low, high = -20.0, 20.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(special.expit(logit + middle)) < _RARE else (low, middle)
    hits = rng.random(len(grid)) < special.expit(logit + low)
    block = fitted_block([Point(bool(hit), levels) for hit, levels in zip(hits, grid, strict=True)])
    return 100 * float(np.mean([probability(block, levels, {}) for levels in grid])), 100 * float(hits.mean())


def _truth(grid: Sequence[Mapping[str, str]], rng: np.random.Generator) -> FloatArray:
    logit = np.full(len(grid), _MEAN)
    for factor, sd in (("suite", SUITE), ("user", USER), ("injection", INJECTION)):
        levels = sorted({case[factor] for case in grid})
        effects = dict(zip(levels, sd * rng.standard_normal(len(levels)), strict=True))
        logit += np.array([effects[case[factor]] for case in grid])
    return np.asarray(1 / (1 + np.exp(-logit)))


def _near(found: float, true: float) -> bool:
    return true / _FACTOR <= found <= true * _FACTOR
