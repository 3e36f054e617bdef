"""How many cases a difference needs, told before anything is run.

Outcomes are taken to come about as published runs, fitted, show them: normal effects on the logit, of user
tasks, injection tasks and pairs under both defenses, and of tasks of both kinds under one alone. From two
rates follow the variance that each kind of task, each pair and each repetition brings to the difference; from
these, the power of the t test that is half of the paired test. Where tasks agree, sign flips find a
difference with fewer cases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from agentsys.analysis.statistics.difference_test import LEVEL, POWER
from agentsys.analysis.statistics.intervals import t_quantile
from agentsys.analysis.statistics.outcome_grid import FloatArray

USER, INJECTION, PAIR, OWN = 2.0, 2.0, 0.5, 0.7
"""Standard deviations on the logit: of user tasks, injection tasks (published runs: 1.1 to 2.7, and 1.3 to
2.9) and pairs under both defenses, and of either kind of task under one of them alone."""


class Difficulties(NamedTuple):
    """How far tasks differ, as standard deviations on the logit: by default, as in published runs."""

    user: float = USER
    injection: float = INJECTION
    pair: float = PAIR
    own: float = OWN

    @property
    def shared(self) -> float:
        """Variance of what both defenses share."""
        return self.user**2 + self.injection**2 + self.pair**2

    @property
    def everything(self) -> float:
        """Variance of all effects under one defense."""
        return self.shared + 2 * self.own**2


PUBLISHED = Difficulties()
_NODES = 60
"""Of the quadrature over normal effects."""

_MOST = 1000.0
"""Times as many tasks of each kind as planned, beyond which a difference counts as out of reach."""


@dataclass(frozen=True)
class PlannedSuite:
    """One suite's cases under one defense and attack; benign ones have one injection task, that is none."""

    users: float
    injections: float
    epochs: float = 1.0

    @property
    def cases(self) -> float:
        """How many they are."""
        return self.users * self.injections * self.epochs

    def grown(self, tasks: float, times: float) -> PlannedSuite:
        """The suite with so many times the tasks of each kind of which it has several, each run `times`."""
        users, injections = (count * tasks if count > 1 else count for count in (self.users, self.injections))
        return PlannedSuite(users, injections, self.epochs * times)


@dataclass(frozen=True)
class Components:
    """Variance that one member of each kind brings to a paired difference; squared proportions."""

    user: float
    injection: float
    pair: float
    """What a pair of tasks brings besides, however often it is repeated."""
    repetition: float
    """What is left to chance each time."""


def cases_needed(
    suites: Sequence[PlannedSuite],
    before: float,
    after: float,
    power: float = POWER,
    tasks: Difficulties = PUBLISHED,
) -> float:
    """Cases per defense that find a true difference with this power at the 5% level, two-sided.

    Args:
        suites: The plan. It keeps its proportions: there are f times as many of each kind of task of which it
            has several, or f times as many suites where each has a single user task.
        before: The baseline's rate in every suite.
        after: The defense's.
        power: Share of such runs that are to find it.
        tasks: How far tasks differ.

    Returns:
        nan if no plan with up to a thousand times as many tasks does.
    """
    components, goal = _components(before, after, tasks), abs(before - after)

    def lacking(log_factor: float) -> float:
        return _detectable(suites, components, math.exp(log_factor), 1.0, power) - goal

    if lacking(math.log(_MOST)) > 0:
        return math.nan
    factor = math.exp(float(scipy.optimize.brentq(lacking, -math.log(_MOST), math.log(_MOST))))
    if _suites_drawn(suites):
        return math.ceil(factor * sum(suite.cases for suite in suites))
    return math.ceil(sum(suite.grown(factor, 1.0).cases for suite in suites))


def epochs_needed(suites: Sequence[PlannedSuite], before: float, after: float) -> float:
    """Times that the plan's own cases must be run to find the difference; nan if no number does."""
    components, goal = _components(before, after), abs(before - after)
    if _detectable(suites, components, 1.0, math.inf) > goal:
        return math.nan
    return next(times for times in itertools.count(1) if _detectable(suites, components, 1.0, times) <= goal)


class _Part(NamedTuple):
    """A part of the variance of the difference."""

    variance: float
    uncertainty: float
    """Sum of squared variances over their degrees of freedom (Satterthwaite)."""


def _detectable(
    suites: Sequence[PlannedSuite], of: Components, tasks: float, times: float, power: float = POWER
) -> float:
    """The difference found with a power by `tasks` times as many tasks of each kind, each run `times`."""
    if _suites_drawn(suites):
        parts = [_of_suites(suites, of, tasks, times)]
    else:
        parts = [_in_suite(suite.grown(tasks, times), 1 / len(suites), of) for suite in suites]
    variance = math.fsum(part.variance for part in parts)
    df = max(variance**2 / math.fsum(part.uncertainty for part in parts), 1.0)
    return (t_quantile(1 - LEVEL / 2, df) + t_quantile(power, df)) * math.sqrt(variance)


def _in_suite(suite: PlannedSuite, share: float, of: Components) -> _Part:
    cell = (of.pair + of.repetition / suite.epochs) / (suite.users * suite.injections)
    ways = ((suite.users, of.user), (suite.injections, of.injection))
    drawn = [(kind / count, count) for count, kind in ways if count != 1]
    uncertainty = math.fsum((part + cell) ** 2 / max(count - 1, 0.5) for part, count in drawn)
    variance = math.fsum(part for part, _ in drawn) + cell
    return _Part(share**2 * variance, share**4 * uncertainty)


def _of_suites(suites: Sequence[PlannedSuite], of: Components, tasks: float, times: float) -> _Part:
    """Suites in the place of user tasks, where each has a single one (see `single_task_suites`)."""
    rest = [
        (of.injection + of.pair + of.repetition / (suite.epochs * times)) / suite.injections
        for suite in suites
    ]
    count = len(suites) * tasks
    variance = (of.user + math.fsum(rest) / len(rest)) / count
    return _Part(variance, variance**2 / max(count - 1, 0.5))


def _suites_drawn(suites: Sequence[PlannedSuite]) -> bool:
    return len(suites) > 1 and all(suite.users == 1 for suite in suites)


@lru_cache
def _components(before: float, after: float, of: Difficulties = PUBLISHED) -> Components:
    """Split the variance of a paired difference between two rates."""
    every, own = of.everything, of.own**2
    whole = _spread_of_chances(before, after, of.shared, every, every)
    user = _spread_of_chances(before, after, of.user**2, of.user**2 + own, every)
    injection = _spread_of_chances(before, after, of.injection**2, of.injection**2 + own, every)
    chance = sum(rate - _product(rate, rate, every, every) for rate in (before, after))
    return Components(user, injection, max(whole - user - injection, 0.0), chance)


def _spread_of_chances(before: float, after: float, shared: float, known: float, every: float) -> float:
    """Variance of the difference of two chances over some effects, the others averaged out.

    Args:
        before: One rate.
        after: The other.
        shared: Variance of those effects that both defenses share; squared logits.
        known: Variance of all of them under one defense.
        every: Variance of all effects there are under one defense.
    """
    own = sum(_product(rate, rate, known, every) for rate in (before, after))
    return own - 2 * _product(before, after, shared, every) - (after - before) ** 2


def _product(one: float, other: float, known: float, every: float) -> float:
    """Mean product of two chances that share effects of variance `known`, the others averaged out."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    effects = math.sqrt(known) * nodes
    curves = [_mean_chance(_centre(rate, every) + effects, every - known) for rate in (one, other)]
    return float(np.average(curves[0] * curves[1], weights=weights))


def _mean_chance(logits: FloatArray, variance: float) -> FloatArray:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    spread = math.sqrt(max(variance, 0.0)) * nodes
    chances: FloatArray = np.average(scipy.special.expit(logits[:, None] + spread), axis=1, weights=weights)
    return chances


@lru_cache
def _centre(rate: float, every: float) -> float:
    """Logit of the typical case where all tasks together have this rate."""
    if rate <= 0:
        return -math.inf
    found = scipy.optimize.brentq(
        lambda logit: float(_mean_chance(np.array([logit]), every)[0]) - rate, -40.0, 40.0
    )
    return float(found)
