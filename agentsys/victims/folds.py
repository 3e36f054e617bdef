"""Forecasts of what was left out, and how good they are: unseen user tasks, injection tasks, suites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentsys.models.simulated.victim.predict import probability
from agentsys.models.simulated.victim.profile import LogitBlock, Skill
from agentsys.victims.blocks import Point, calibrated, fitted_block
from agentsys.victims.mixed_logit import FloatArray

USER_FOLDS = 10
_BINS = 10
_SIMULATIONS = 200


def validated(points: Sequence[Point], block: LogitBlock, *, seed: int = 0) -> dict[str, Skill]:
    """Leave out user tasks (in ten folds), each injection task, and each suite; forecast; compare.

    Args:
        points: The exposed cases; their levels have `suite`, `user` and `injection`.
        block: The fit to all of them. Its standard deviations are kept in every fold, or forty fits would
            take minutes; what is left out is forecast without its own effect.
        seed: Seed of the simulations behind the noise floor.
    """
    ways = {"user": USER_FOLDS, "injection": 0, "suite": 0}
    return {
        factor: skill(points, left_out(points, block, factor, folds), seed=seed)
        for factor, folds in ways.items()
        if len({point.levels[factor] for point in points}) > 1
    }


def left_out(points: Sequence[Point], block: LogitBlock, factor: str, folds: int = 0) -> FloatArray:
    """Forecast each point by a fit without its level of a factor.

    Args:
        points: The cases.
        block: The fit to all of them, for its standard deviations.
        factor: What is unseen.
        folds: Parts that the levels are dealt into; 0: each level is one.
    """
    first = next(iter(block.sd))
    levels = sorted({point.levels[factor] for point in points})
    part = {level: place % folds if folds else place for place, level in enumerate(levels)}
    forecast = np.zeros(len(points))
    for fold in sorted(set(part.values())):
        known = [point for point in points if part[point.levels[factor]] != fold]
        fit = fitted_block(known, block.sd)
        if factor == first:  # a new suite has no offset of its own
            fit = fit.model_copy(update={"offset": _global(fit, known)})
        for place, point in enumerate(points):
            if part[point.levels[factor]] == fold:
                known_as = point.levels if factor != first else {**point.levels, first: _ANY}
                forecast[place] = probability(fit, known_as, point.covariates)
    return forecast


_ANY = ""
"""Level under which the offset for new levels is kept."""


def _global(block: LogitBlock, known: Sequence[Point]) -> Mapping[str, float]:
    first = next(iter(block.sd))
    bare = block.model_copy(update={"effects": block.effects | {first: {}}, "offset": {}})
    alike = [Point(p.outcome, {**p.levels, first: _ANY}, p.covariates) for p in known]
    return calibrated(bare, alike).offset


def skill(points: Sequence[Point], forecast: FloatArray, *, seed: int = 0) -> Skill:
    """Score forecasts.

    Args:
        points: The cases.
        forecast: A probability each.
        seed: Seed of the noise floor's simulations.
    """
    outcomes = np.array([float(point.outcome) for point in points])
    rng = np.random.default_rng(seed)
    ideal = [_calibration_error(rng.random(len(forecast)) < forecast, forecast) for _ in range(_SIMULATIONS)]
    apart = list(_by_suite(points, outcomes, forecast))
    return Skill(
        brier=round(float(np.mean((forecast - outcomes) ** 2)), 4),
        base=round(float(outcomes.mean() * (1 - outcomes.mean())), 4),
        ece=round(100 * _calibration_error(outcomes, forecast), 1),
        floor=round(100 * float(np.mean(ideal)), 1),
        overall=round(100 * float((forecast - outcomes).mean()), 1),
        worst_suite=round(100 * max(map(abs, apart)), 1),
    )


def _by_suite(points: Sequence[Point], outcomes: FloatArray, forecast: FloatArray) -> Iterator[float]:
    suites = np.array([point.levels["suite"] for point in points])
    for suite in np.unique(suites):
        yield float((forecast - outcomes)[suites == suite].mean())


def _calibration_error(outcomes: NDArray[Any], forecast: FloatArray) -> float:
    """Mean distance of rate and forecast over bins of equal size, weighted by size."""
    order = np.argsort(forecast, kind="stable")
    parts = np.array_split(order, _BINS)
    return float(
        sum(abs(outcomes[part].mean() - forecast[part].mean()) * len(part) for part in parts if len(part))
        / len(forecast)
    )
