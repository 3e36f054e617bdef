"""Generated outcomes shaped like AgentDojo, and how often the intervals of rates are right on them.

User tasks and injection tasks have normal effects on the logit of an outcome; the truth is the mean
over all tasks that could have been drawn. For docs/statistics.md and the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from paired_grids import tally_of
from scipy import special

from agentsys.analysis.statistics.outcome_grid import (
    FloatArray,
    Interval,
    Resampler,
    Side,
    compute_percentile_interval,
)
from agentsys.analysis.statistics.rate_estimates import compute_proportion_interval, estimate_mean_rate

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
        rates = [np.average(special.expit(mean + spread * nodes), weights=weights) for mean in self.means]
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
    for grids in _generate(setting, runs, seed):
        tallies = [tally_of(grid, suite=f"suite {number}") for number, grid in enumerate(grids)]
        estimate = estimate_mean_rate(tallies, Side.INJECTED, resampler)
        shown.append(compute_proportion_interval(estimate))
        plain.append(compute_percentile_interval(estimate.draws))
    above = float(np.mean([interval.high < truth for interval in shown]))
    below = float(np.mean([interval.low > truth for interval in shown]))
    inside = float(np.mean([interval.low <= truth <= interval.high for interval in plain]))
    return Covered(1 - above - below, inside, above, below)


def _generate(setting: Setting, runs: int, seed: int) -> Iterator[list[FloatArray]]:
    """The outcomes of each run, one array per suite."""
    generator = np.random.default_rng(seed)
    for _ in range(runs):
        logits = []
        for mean, (users, injections) in zip(setting.means, setting.shape, strict=True):
            single = setting.pair * generator.standard_normal((users, injections))
            effects = setting.user * generator.standard_normal((users, 1))
            logits.append(
                mean + effects + setting.injection * generator.standard_normal((1, injections)) + single
            )
        yield [(generator.random(one.shape) < special.expit(one)).astype(np.float64) for one in logits]
