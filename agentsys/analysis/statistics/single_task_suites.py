"""Suites in the place of user tasks: rates over suites that have a single user task each.

A single user task leaves nothing to draw from inside its suite, and its cases, alike but for the
injection, tell nothing about other user tasks. Where that is so in every suite, the suites are what is
drawn, each with all its cases (a one-stage cluster bootstrap); injection tasks are not drawn besides,
as a suite brings its own.

Source: A. C. Davison, D. V. Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.outcome_grid import FloatArray
from agentsys.analysis.statistics.variance import Spread


@dataclass(frozen=True)
class Lone:
    """A suite with a single user task."""

    suite: str
    hits: float
    cases: float
    cells: int
    """Injection tasks with a case (1 for benign cases)."""
    resampler: Resampler


def macro_draws(suites: Sequence[Lone]) -> FloatArray:
    """Replicates of the unweighted mean of the suites' rates; shape (replicates,)."""
    rates = np.array([suite.hits / suite.cases if suite.cases else np.nan for suite in suites])
    draws: FloatArray = _weights(suites) @ rates / len(suites)
    return draws


def pooled_draws(suites: Sequence[Lone]) -> FloatArray:
    """Replicates of all successes over all cases; nan where none of the suites drawn has a case."""
    weights = _weights(suites)
    hits = weights @ np.array([suite.hits for suite in suites])
    cases = weights @ np.array([suite.cases for suite in suites])
    draws: FloatArray = np.divide(hits, cases, out=np.full_like(hits, np.nan), where=cases > 0)
    return draws


def macro_spread(suites: Sequence[Lone]) -> Spread:
    """How the suites carry their unweighted mean. Every suite must have a case."""
    rates = np.array([suite.hits / suite.cases for suite in suites])
    return _spread((rates - rates.mean()) / len(suites), suites)


def pooled_spread(suites: Sequence[Lone]) -> Spread:
    """How the suites carry the rate of all cases together. Some suite must have a case."""
    hits, cases = (np.array([getattr(suite, name) for suite in suites]) for name in ("hits", "cases"))
    return _spread((hits - hits.sum() / cases.sum() * cases) / cases.sum(), suites)


def _weights(suites: Sequence[Lone]) -> FloatArray:
    """How often each suite is drawn; the same for the same suites, whatever is measured on them."""
    names = [suite.suite for suite in suites]
    order = sorted(range(len(names)), key=names.__getitem__)
    drawn = suites[0].resampler.weights("", "suite", tuple(names[at] for at in order))
    weights = np.empty_like(drawn)
    weights[:, order] = drawn
    return weights


def _spread(influence: FloatArray, suites: Sequence[Lone]) -> Spread:
    # One more success in each suite, as where user tasks are drawn: what could have been seen at least.
    lone = np.array([1 / (len(suites) * max(suite.cells, 1)) for suite in suites])
    return Spread(influence, np.zeros(1), 0.0, 1.0, 0.0, float(lone.sum()), float((lone**2).sum()))
