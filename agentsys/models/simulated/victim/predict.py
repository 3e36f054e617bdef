"""Probabilities of a profile and its blocks: the same arithmetic when fitting, validating and simulating."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping

from agentsys.models.simulated.victim.profile import LogitBlock, VictimProfile


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


def chances(profile: VictimProfile, shift: float = 0.0) -> Iterator[tuple[str, str, str, float]]:
    """(suite, user task, injection task, probability of success) of every pair that the runs had.

    The moment of each counts as an average one: what decides it is known only while a case is played.
    """
    goals: dict[str, list[str]] = {}
    for goal in profile.obey.effects["injection"]:
        goals.setdefault(goal.partition("/")[0], []).append(goal)
    for user in profile.exposed.effects["user"]:
        suite = user.partition("/")[0]
        read = probability(profile.exposed, {"suite": suite, "user": user}, {})
        for goal in goals.get(suite, ()):
            levels = {"suite": suite, "user": user, "injection": goal}
            yield suite, user, goal, read * probability(profile.obey, levels, {}, shift)


def asr_range(
    profile: VictimProfile,
    shifts: tuple[float, float],
    pairs: Container[tuple[str, str, str]] | None = None,
) -> tuple[float, float]:
    """Mean ASR, percent, under the lower and the upper of two shifts.

    Args:
        profile: The victim.
        shifts: On the logit.
        pairs: (suite, user task, injection task) of those to average over, each suite by itself and then the
            suites, as tables do; None: all that the runs had, each alike.
    """
    low, high = (_mean(profile, shift, pairs) for shift in (min(shifts), max(shifts)))
    return 100 * low, 100 * high


def _mean(profile: VictimProfile, shift: float, pairs: Container[tuple[str, str, str]] | None) -> float:
    found: dict[str, list[float]] = {}
    for suite, user, goal, chance in chances(profile, shift):
        if pairs is None:
            found.setdefault("", []).append(chance)
        elif (suite, user.partition("/")[2], goal.partition("/")[2]) in pairs:
            found.setdefault(suite, []).append(chance)
    return sum(sum(one) / len(one) for one in found.values()) / len(found)
