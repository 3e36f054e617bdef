"""Probabilities of a block of a profile: the same arithmetic when fitting, validating and simulating."""

from __future__ import annotations

import math
from collections.abc import Mapping

from agentsys.models.simulated.victim.profile import LogitBlock


def logistic(logit: float) -> float:
    """The probability of a logit, without overflow."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    return math.exp(logit) / (1.0 + math.exp(logit))


def probability(
    block: LogitBlock, levels: Mapping[str, str], covariates: Mapping[str, float], shift: float = 0.0
) -> float:
    """The forecast probability of one case.

    Args:
        block: The fitted block.
        levels: Factor -> level; a level without runs adds its factor's whole variance.
        covariates: Name -> value, not standardised; those that the block does not have are passed over.
        shift: Added to the logit, e.g. of an attack's wording.

    Returns:
        The logistic of the mean, shrunk for the variance (MacKay's approximation: 1 + pi v / 8).
    """
    mean, variance = linear(block, levels, covariates)
    first = next(iter(block.sd))
    mean += shift + block.offset.get(levels.get(first, ""), 0.0)
    return logistic(mean / math.sqrt(1.0 + math.pi * variance / 8.0))


def linear(
    block: LogitBlock, levels: Mapping[str, str], covariates: Mapping[str, float]
) -> tuple[float, float]:
    """Mean and variance of a case's logit, offset and shift aside.

    Standard errors of levels are added as if independent: the file does not hold their covariances.
    """
    mean, variance = block.fixed["intercept"], 0.0
    for name, (centre, spread) in block.standardise.items():
        if name in covariates:
            mean += block.fixed[name] * (covariates[name] - centre) / (spread or 1.0)
    for factor, sd in block.sd.items():
        effect, error = block.effects[factor].get(levels.get(factor, ""), (0.0, sd))
        mean += effect
        variance += error * error
    return mean, variance
