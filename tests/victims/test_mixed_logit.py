"""The fit: crossed effects are found again, unseen levels widen, totals are what was observed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from agentsys.models.simulated.victim.predict import linear, logistic, probability
from agentsys.victims.blocks import Point, fitted_block
from agentsys.victims.folds import left_out, skill, validated
from agentsys.victims.mixed_logit import LogitData, fitted_logit
from agentsys.victims.recovery import recovered


def grid(rate: float = 0.3, *, seed: int = 0, users: int = 12, goals: int = 5) -> list[Point]:
    """Two suites whose tasks differ; outcomes drawn at about this rate."""
    rng = np.random.default_rng(seed)
    middle = np.log(rate / (1 - rate))
    points = []
    for suite in ("a", "b"):
        ease, want = 1.5 * rng.standard_normal(users), rng.standard_normal(goals)
        for u in range(users):
            for i in range(goals):
                levels = {"suite": suite, "user": f"{suite}/u{u}", "injection": f"{suite}/i{i}"}
                hit = rng.random() < logistic(middle + ease[u] + want[i])
                points.append(Point(bool(hit), levels, {"round": float(u % 3)}))
    return points


def logit_data(points: list[Point]) -> LogitData:
    """The same as arrays, its one covariate standardised."""
    names = ("suite", "user", "injection")
    found = [np.unique([p.levels[name] for p in points], return_inverse=True) for name in names]
    value = np.array([[p.covariates["round"]] for p in points])
    return LogitData(
        np.array([float(p.outcome) for p in points]),
        (value - value.mean()) / value.std(),
        [levels for _, levels in found],
        [len(known) for known, _ in found],
    )


def test_the_mean_forecast_of_each_suite_is_its_observed_rate() -> None:
    points = grid()
    block = fitted_block(points)
    for suite in ("a", "b"):
        chosen = [p for p in points if p.levels["suite"] == suite]
        mean = np.mean([probability(block, p.levels, p.covariates) for p in chosen])
        assert mean == pytest.approx(np.mean([p.outcome for p in chosen]), abs=0.001)


def test_rare_successes_are_not_forecast_too_often() -> None:
    points = grid(0.004, seed=3)
    rate = np.mean([p.outcome for p in points])
    assert 0 < rate < 0.05
    block = fitted_block(points)
    total = np.mean([probability(block, p.levels, p.covariates) for p in points])
    assert total == pytest.approx(rate, abs=0.005)


@pytest.mark.parametrize("outcome", [True, False])
def test_a_suite_without_a_difference_has_a_finite_forecast(outcome: bool) -> None:
    points = [Point(outcome, p.levels, p.covariates) for p in grid()]
    block = fitted_block(points)
    assert max(map(abs, block.offset.values())) <= 3.0
    chances = [probability(block, p.levels, p.covariates) for p in points]
    assert all(0 < chance < 1 for chance in chances)
    assert (min(chances) > 0.5) is outcome


def test_an_unseen_level_adds_its_variance() -> None:
    points = grid()
    block = fitted_block(points)
    known, new = points[0].levels, {**points[0].levels, "user": "a/new"}
    assert linear(block, new, {})[1] == pytest.approx(
        linear(block, known, {})[1] - block.effects["user"]["a/u0"][1] ** 2 + block.sd["user"] ** 2
    )


def test_known_standard_deviations_are_kept() -> None:
    block = fitted_block(grid(), {"suite": 0.5, "user": 1.25, "injection": 0.75})
    assert block.sd == {"suite": 0.5, "user": 1.25, "injection": 0.75}


def test_left_out_tasks_are_forecast_without_themselves() -> None:
    points = grid()
    block = fitted_block(points)
    flipped = [
        Point(not p.outcome if p.levels["user"] == "a/u0" else p.outcome, p.levels, p.covariates)
        for p in points
    ]
    before, after = (left_out(found, block, "user") for found in (points, flipped))
    own = [place for place, p in enumerate(points) if p.levels["user"] == "a/u0"]
    assert np.allclose(before[own], after[own])
    assert not np.allclose(before, after)


def test_a_forecast_that_knows_the_tasks_beats_the_mean_rate() -> None:
    points = grid()
    found = validated(points, fitted_block(points))
    assert set(found) == {"user", "injection", "suite"}
    assert found["injection"].brier < 0.9 * found["injection"].base
    perfect = skill(points, np.array([float(p.outcome) for p in points]))
    assert (perfect.brier, perfect.ece, perfect.worst_suite) == (0.0, 0.0, 0.0)


@pytest.mark.slow
def test_a_known_truth_is_found_again() -> None:
    found = recovered([p.levels for p in grid(users=24, goals=7)], runs=8)
    assert found.within >= 0.75
    assert found.user_sd >= 0.75
    assert found.brier <= found.ideal + 0.04
    assert 0.5 <= found.rare <= 1.5
    assert found.rare == pytest.approx(found.rare_drawn, abs=0.3)


def test_the_mode_is_where_another_optimiser_finds_it() -> None:
    points = grid()
    sds = {"suite": 0.7, "user": 1.4, "injection": 0.9}
    data = logit_data(points)
    fit = fitted_logit(data, np.array([*sds.values()]))

    def lost(place: np.ndarray) -> float:
        logit = place[0] + data.covariates @ place[1:2]
        start, penalty = 2, (place[0] / 5) ** 2 + (place[1] / 3) ** 2
        for levels, size, sd in zip(data.levels, data.sizes, sds.values(), strict=True):
            effects = place[start : start + size]
            logit = logit + effects[levels]
            penalty += float(((effects / sd) ** 2).sum())
            start += size
        return float(np.logaddexp(0, logit).sum() - data.outcomes @ logit + penalty / 2)

    found = optimize.minimize(lost, np.zeros(2 + sum(data.sizes)), method="BFGS", options={"gtol": 1e-6})
    ours = np.concatenate([fit.fixed, *fit.effects])
    assert np.allclose(found.x, ours, atol=1e-3)


def test_the_standard_deviation_is_the_one_that_quadrature_finds() -> None:
    """One factor: its marginal likelihood can be integrated exactly, level by level."""
    rng = np.random.default_rng(4)
    levels = np.repeat(np.arange(60), 12)
    effects = 1.3 * rng.standard_normal(60)
    outcomes = (rng.random(720) < special.expit(-0.8 + effects[levels])).astype(float)
    fit = fitted_logit(LogitData(outcomes, np.empty((720, 0)), [levels], [60]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    hits, cases = (np.bincount(levels, weights=w) for w in (outcomes, np.ones(720)))

    def lost(place: np.ndarray) -> float:
        logit = place[0] + np.exp(place[1]) * nodes[:, None]
        each = special.log_expit(logit) * hits + special.log_expit(-logit) * (cases - hits)
        whole = special.logsumexp(each, axis=0, b=(weights / weights.sum())[:, None]).sum()
        return float(-whole + 0.5 * place[1] ** 2 + 0.5 * (place[0] / 5) ** 2)

    found = optimize.minimize(lost, np.zeros(2), method="Nelder-Mead").x
    assert fit.sds[0] == pytest.approx(np.exp(found[1]), rel=0.05)
    assert fit.fixed[0] == pytest.approx(found[0], abs=0.1)


@pytest.mark.slow
def test_statsmodels_variational_fit_ranks_the_tasks_alike() -> None:
    mixed = pytest.importorskip("statsmodels.genmod.bayes_mixed_glm")
    points = grid(users=24, goals=7)
    data = logit_data(points)
    fit = fitted_logit(data)
    hot = [np.eye(size)[levels] for levels, size in zip(data.levels, data.sizes, strict=True)]
    ident = np.repeat(np.arange(len(hot)), data.sizes)
    fixed = np.hstack([np.ones((len(points), 1)), data.covariates])
    model = mixed.BinomialBayesMixedGLM(data.outcomes, fixed, np.hstack(hot), ident, vcp_p=1, fe_p=5)
    theirs = model.fit_vb().vc_mean
    ours = np.concatenate(fit.effects)
    assert np.corrcoef(ours[2:], theirs[2:])[0, 1] >= 0.99  # of two suites each has one effect


@settings(max_examples=50)
@given(st.floats(-800, 800))
def test_a_logit_of_any_size_is_a_probability(logit: float) -> None:
    assert 0.0 <= logistic(logit) <= 1.0
    assert logistic(logit) + logistic(-logit) == pytest.approx(1.0)
