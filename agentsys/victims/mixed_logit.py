"""`fitted_logit`: a logistic regression with several crossed random effects, by Laplace's approximation.

Dense and small on purpose: a profile has some hundred levels. Newton's method finds the mode for given
standard deviations; those maximise the Laplace approximation of the marginal likelihood.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FIXED_SD = (5.0, 3.0)
"""Prior standard deviations of the intercept and of standardised covariates' coefficients."""
_NEWTON_STEPS = 50
_CLOSE = 1e-8
_EM_ROUNDS = 25
_SIMPLEX = 0.5


@dataclass(frozen=True)
class LogitData:
    """Outcomes and what explains them."""

    outcomes: FloatArray
    """Shape `(n,)`: 0 or 1."""
    covariates: FloatArray
    """Shape `(n, k)`, standardised; the intercept is not among them."""
    levels: Sequence[IntArray]
    """One array of shape `(n,)` per factor: which level each case has."""
    sizes: Sequence[int]
    """How many levels each factor has."""


@dataclass(frozen=True)
class LogitFit:
    """The mode, and how sure it is."""

    fixed: FloatArray
    """Intercept, then the covariates' coefficients."""
    effects: Sequence[FloatArray]
    """Per factor, its levels' effects."""
    errors: Sequence[FloatArray]
    """Their standard errors."""
    sds: FloatArray
    """Per factor."""


def fitted_logit(data: LogitData, sds: FloatArray | None = None) -> LogitFit:
    """Fit the model; standard deviations of the factors' effects that are given are taken as known."""
    design = _design(data)
    found = _estimated(data, design) if sds is None else sds
    mode, hessian = _mode(data, design, found, np.zeros(design.shape[1]))
    errors = np.sqrt(np.diag(scipy.linalg.inv(hessian)))
    cuts = np.cumsum([1 + data.covariates.shape[1], *data.sizes])
    parts = list(itertools.pairwise(cuts))
    return LogitFit(
        mode[: cuts[0]], [mode[a:b] for a, b in parts], [errors[a:b] for a, b in parts], np.asarray(found)
    )


def _design(data: LogitData) -> FloatArray:
    ones = np.ones((len(data.outcomes), 1))
    hot = [np.eye(size)[levels] for levels, size in zip(data.levels, data.sizes, strict=True)]
    return np.hstack([ones, data.covariates, *hot])


def _precision(data: LogitData, sds: FloatArray) -> FloatArray:
    prior = [_FIXED_SD[0], *[_FIXED_SD[1]] * data.covariates.shape[1]]
    prior += [sd for sd, size in zip(sds, data.sizes, strict=True) for _ in range(size)]
    return np.asarray(prior, dtype=np.float64) ** -2.0


def _mode(
    data: LogitData, design: FloatArray, sds: FloatArray, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mode of the log posterior, and its negative second derivatives there."""
    precision, place = _precision(data, sds), start
    value = _log_posterior(data, design, precision, place)
    for _ in range(_NEWTON_STEPS):
        chance = scipy.special.expit(design @ place)
        gradient = design.T @ (data.outcomes - chance) - precision * place
        hessian = _hessian(design, chance, precision)
        step = scipy.linalg.solve(hessian, gradient, assume_a="pos")
        size = 1.0
        while size > 1e-4 and _log_posterior(data, design, precision, place + size * step) < value - 1e-12:
            size /= 2
        place = place + size * step
        value = _log_posterior(data, design, precision, place)
        if float(gradient @ step) < _CLOSE:
            break
    return place, _hessian(design, scipy.special.expit(design @ place), precision)


def _hessian(design: FloatArray, chance: FloatArray, precision: FloatArray) -> FloatArray:
    weighted = design * (chance * (1 - chance))[:, None]
    return np.asarray(design.T @ weighted + np.diag(precision))


def _log_posterior(data: LogitData, design: FloatArray, precision: FloatArray, place: FloatArray) -> float:
    logit = design @ place
    fit = float(data.outcomes @ logit - np.logaddexp(0.0, logit).sum())
    return fit - 0.5 * float(precision @ (place * place))


def _estimated(data: LogitData, design: FloatArray) -> FloatArray:
    """Standard deviations that maximise the Laplace marginal likelihood, N(0, 1) on their logs."""
    place = np.zeros(design.shape[1])

    def lost(logs: FloatArray) -> float:
        nonlocal place
        sds = np.exp(np.clip(logs, -4.0, 3.0))
        place, hessian = _mode(data, design, sds, place)
        precision = _precision(data, sds)
        _, volume = np.linalg.slogdet(hessian)
        value = _log_posterior(data, design, precision, place) + 0.5 * (np.log(precision).sum() - volume)
        return -float(value) + 0.5 * float(logs @ logs)

    start = np.log(_by_em(data, design)) + 0.3
    # A start without a simplex of its own has edges of 5% of each value and stops where it began.
    simplex = np.vstack([start, *(start + _SIMPLEX * np.eye(len(start)))])
    options = {"initial_simplex": simplex, "xatol": 0.02, "fatol": 0.01, "maxiter": 60 * len(start)}
    found = scipy.optimize.minimize(lost, start, method="Nelder-Mead", options=options)
    return np.asarray(np.exp(np.clip(found.x, -4.0, 3.0)))


def _by_em(data: LogitData, design: FloatArray) -> FloatArray:
    """Rough standard deviations: the mean square of each factor's effects and of their errors, in rounds."""
    sds, place = np.ones(len(data.sizes)), np.zeros(design.shape[1])
    cuts = np.cumsum([1 + data.covariates.shape[1], *data.sizes])
    for _ in range(_EM_ROUNDS):
        place, hessian = _mode(data, design, sds, place)
        spread = np.diag(scipy.linalg.inv(hessian)) + place**2
        new = np.array([np.sqrt(spread[a:b].mean()) for a, b in itertools.pairwise(cuts)])
        new = np.clip(new, 0.05, 10.0)
        if np.abs(new - sds).max() < 0.01:
            return np.asarray(new)
        sds = new
    return np.asarray(sds)
