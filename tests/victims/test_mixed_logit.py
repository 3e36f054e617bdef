"""The fit: crossed effects are found again, unseen levels widen, totals are what was observed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.models.simulated.victim.predict import linear, logistic, probability
from agentsys.victims.blocks import Point, fitted_block
from agentsys.victims.folds import left_out, skill, validated
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


@settings(max_examples=50)
@given(st.floats(-800, 800))
def test_a_logit_of_any_size_is_a_probability(logit: float) -> None:
    assert 0.0 <= logistic(logit) <= 1.0
    assert logistic(logit) + logistic(-logit) == pytest.approx(1.0)
