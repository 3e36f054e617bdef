"""Generated outcomes shaped like AgentDojo, and how often the intervals of rates are right on them.

User tasks and injection tasks have normal effects on the logit of an outcome; the truth is the mean
over all tasks that could have been drawn. For docs/statistics.md and the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from paired_grids import tally_of

from agentsys.analysis.statistics.outcome_grid import (
    FloatArray,
    Interval,
    Resampler,
    Side,
    compute_percentile_interval,
)
from agentsys.analysis.statistics.rate_estimates import (
    Estimate,
    compute_proportion_interval,
    estimate_mean_rate,
)

AGENTDOJO_V1_2 = ((16, 9), (21, 5), (20, 7), (40, 14))
"""User tasks and injection tasks of banking, slack, travel and workspace since v1.2."""

UNDEFENDED = (-0.6, 0.3, -1.8, -1.5)
"""Logits of about the ASR of gpt-4o-mini per suite: 34, 57, 14 and 18 percent."""


@dataclass(frozen=True)
class Setting:
    """How outcomes come about; standard deviations on the logit scale."""

    means: tuple[float, ...] = UNDEFENDED
    """Logit of the typical case, one per suite."""
    user: float = 1.0
    """Of user tasks."""
    injection: float = 1.0
    """Of injection tasks."""
    pair: float = 0.0
    """Of single (user task, injection task) pairs."""
    shape: tuple[tuple[int, int], ...] = AGENTDOJO_V1_2
    """(user tasks, injection tasks) per suite."""

    @property
    def truth(self) -> float:
        """The overall rate over all tasks that could have been drawn."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        spread = np.sqrt(self.user**2 + self.injection**2 + self.pair**2)
        rates = [np.average(_logistic(mean + spread * nodes), weights=weights) for mean in self.means]
        return float(np.mean(rates))


class Covered(NamedTuple):
    """Shares of the generated runs."""

    calibrated: float
    """In which the interval that is shown holds the truth."""
    percentile: float
    """In which the plain percentile interval of the same replicates holds it."""
    above: float
    """In which the truth is above the interval that is shown."""
    below: float


def coverage(setting: Setting, runs: int, *, replicates: int = 400, seed: int = 0) -> Covered:
    """How often 95% intervals of the overall rate hold the truth.

    Args:
        setting: How outcomes come about.
        runs: How many runs are generated.
        replicates: Of the bootstrap.
        seed: Of the generated outcomes.
    """
    truth, resampler = setting.truth, Resampler(replicates)
    shown: list[Interval] = []
    plain: list[Interval] = []
    for chances in _chances(setting, runs, seed):
        estimate = _overall([_outcomes(chances[0], chance) for chance in chances[1]], resampler)
        shown.append(compute_proportion_interval(estimate))
        plain.append(compute_percentile_interval(estimate.draws))
    above = float(np.mean([interval.high < truth for interval in shown]))
    below = float(np.mean([interval.low > truth for interval in shown]))
    inside = float(np.mean([interval.low <= truth <= interval.high for interval in plain]))
    return Covered(1 - above - below, inside, above, below)


def _chances(
    setting: Setting, runs: int, seed: int
) -> Iterator[tuple[np.random.Generator, list[FloatArray]]]:
    for generator, logits in _logits(setting, runs, seed):
        yield generator, [_logistic(logit) for logit in logits]


def _logits(setting: Setting, runs: int, seed: int) -> Iterator[tuple[np.random.Generator, list[FloatArray]]]:
    generator = np.random.default_rng(seed)
    for _ in range(runs):
        logits = []
        for mean, shape in zip(setting.means, setting.shape, strict=True):
            single = setting.pair * generator.standard_normal(shape)
            logits.append(mean + _effects(generator, shape, setting.user, setting.injection) + single)
        yield generator, logits


def _effects(
    generator: np.random.Generator, shape: tuple[int, ...], user: float, injection: float
) -> FloatArray:
    users = user * generator.standard_normal((shape[0], 1))
    effects: FloatArray = users + injection * generator.standard_normal((1, shape[1]))
    return effects


def _outcomes(generator: np.random.Generator, chance: FloatArray) -> FloatArray:
    return (generator.random(chance.shape) < chance).astype(np.float64)


def _overall(grids: Sequence[FloatArray], resampler: Resampler) -> Estimate:
    counted = [tally_of(grid, suite=f"suite {number}") for number, grid in enumerate(grids)]
    return estimate_mean_rate(counted, Side.INJECTED, resampler)


def _logistic(logit: FloatArray) -> FloatArray:
    chance: FloatArray = 1 / (1 + np.exp(-logit))
    return chance
