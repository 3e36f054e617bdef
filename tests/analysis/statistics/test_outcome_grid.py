"""Draws of tasks, and how tasks spread a rate."""

from __future__ import annotations

import numpy as np
import pytest
from stored_cases import row

from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    FloatArray,
    Resampler,
    Side,
    Tally,
    add_spreads,
    compute_percentile_interval,
    make_spread,
    scale_spread,
    sum_moments,
    tally_suites,
    widen_tally,
)
from agentsys.analysis.statistics.rate_estimates import estimate_pooled_rate


def _tally(hits: FloatArray, cases: FloatArray | None = None) -> Tally:
    users, injections = hits.shape
    return Tally(
        "suite",
        tuple(f"user_task_{i:02d}" for i in range(users)),
        tuple(f"injection_task_{i:02d}" for i in range(injections)),
        np.ones_like(hits) if cases is None else cases,
        hits,
        hits,
        0,
    )


def _rates(counted: Tally, replicates: int = 20_000, seed: int = 0) -> FloatArray:
    sampler = Resampler(replicates, seed)
    return sampler.compute_totals(counted.hijacked, counted) / sampler.compute_totals(counted.cases, counted)


def test_who_resamples_alike_shares_draws_and_another_seed_or_number_has_its_own() -> None:
    drawn = ("suite", "user", ("user_task_0", "user_task_1", "user_task_2"))
    first = Resampler(50).draw_weights(*drawn)
    assert Resampler(50).draw_weights(*drawn) is first
    assert (Resampler(50, seed=1).draw_weights(*drawn) != first).any()
    assert Resampler(60).draw_weights(*drawn).shape == (60, 3)


def test_standard_error_equals_brute_force_with_repeated_cases_and_gaps() -> None:
    rng = np.random.default_rng(8)
    cases = rng.integers(0, 3, size=(12, 5)).astype(float)
    cases[:, 0] += 1
    hits = np.minimum(cases, _grid(12, 5) * 2)
    brute = []
    for _ in range(6000):
        users, injections = rng.integers(0, 12, 12), rng.integers(0, 5, 5)
        chosen = np.ix_(users, injections)
        brute.append(hits[chosen].sum() / cases[chosen].sum())
    ours = _rates(_tally(hits, cases))
    assert ours.std() == pytest.approx(np.std(brute), rel=0.05)
    assert np.percentile(ours, [2.5, 97.5]) == pytest.approx(np.percentile(brute, [2.5, 97.5]), abs=0.03)


def test_benign_cases_are_resampled_by_user_task_alone() -> None:
    solved = np.array([[1.0], [0.0]] * 20)
    assert _rates(_tally(solved)).std() == pytest.approx(np.sqrt(0.25 / 40), rel=0.03)


def test_interval_of_normal_draws_holds_the_middle_95_percent() -> None:
    interval = compute_percentile_interval(np.random.default_rng(1).standard_normal(200_000))
    assert (interval.low, interval.high) == pytest.approx((-1.96, 1.96), abs=0.02)


def test_users_and_injections_with_the_same_ids_are_drawn_independently() -> None:
    sampler, ids = Resampler(5000), tuple("abcdefgh")
    users, injections = sampler.draw_weights("s", "user", ids), sampler.draw_weights("s", "injection", ids)
    assert abs(np.corrcoef(users[:, 0], injections[:, 0])[0, 1]) < 0.05
    assert (users.sum(axis=1) == 8).all()


def test_nothing_to_resample_is_undefined_and_not_certain() -> None:
    single = tally_suites([row()], ErrorRule.REPORT)["banking"]
    assert np.isnan(_rates(single, 50)).all()
    assert np.isnan(compute_percentile_interval(_rates(single, 50)).low)


def test_a_task_whose_cases_all_errored_is_no_cluster() -> None:
    lost = row(user_task_id="user_task_1", status="error", error_kind="timeout")
    counted = tally_suites([row(), lost], ErrorRule.REPORT)["banking"]
    assert (counted.user_tasks, counted.errors) == (("user_task_0",), 1)
    assert np.isnan(_rates(counted, 50)).all()


def test_totals_of_cases_are_made_once_for_the_same_cases_and_anew_for_others() -> None:
    sampler, hits = Resampler(50), _grid(4, 3)
    gaps = np.ones_like(hits)
    gaps[0, 0] = 0
    first = sampler.compute_totals(_tally(hits).cases, _tally(hits))
    assert sampler.compute_totals(_tally(1 - hits).cases, _tally(1 - hits)) is first
    assert np.array_equal(first, Resampler(50).compute_totals(np.ones_like(hits), _tally(hits)))
    wider = widen_tally(_tally(hits), tuple(f"user_task_{i:02d}" for i in range(6)))
    for counted in (_tally(hits * gaps, gaps), wider, _tally(hits[:, :2])):
        expected = Resampler(50).compute_totals(counted.cases, counted)
        assert np.array_equal(sampler.compute_totals(counted.cases, counted), expected)
        assert not np.array_equal(expected, first)


def _grid(users: int, injections: int, seed: int = 5) -> FloatArray:
    rng = np.random.default_rng(seed)
    chance = 0.5 + 0.25 * rng.standard_normal((users, 1)) + 0.25 * rng.standard_normal((1, injections))
    return (rng.random((users, injections)) < chance).astype(float)


def test_variance_of_a_balanced_grid_is_that_of_the_analysis_of_variance() -> None:
    grid = _grid(20, 9)
    rows, columns = grid.mean(axis=1), grid.mean(axis=0)
    rest = grid - rows[:, None] - columns[None, :] + grid.mean()
    squares = 9 * rows.var(ddof=1) + 20 * columns.var(ddof=1) - (rest**2).sum() / (19 * 8)
    assert sum_moments([make_spread(grid, _tally(grid))]).variance == pytest.approx(squares / 180)


def test_bootstrap_variance_is_that_of_the_replicates() -> None:
    grid = _grid(12, 6)
    cases = np.random.default_rng(2).integers(0, 3, size=(12, 6)).astype(float) + (np.arange(6) == 0)
    for counted in (_tally(grid), _tally(np.minimum(grid, cases), cases)):
        estimate = estimate_pooled_rate([counted], Side.INJECTED, Resampler(20_000))
        found = sum_moments(estimate.spreads).bootstrap_variance
        assert found == pytest.approx(estimate.draws.var(), rel=0.06)


def test_variance_agrees_with_statsmodels_two_way_clustering() -> None:
    statsmodels = pytest.importorskip("statsmodels.api")
    from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

    keep = np.random.default_rng(3).random((60, 40)) < 0.8
    grid = _grid(60, 40) * keep
    users, injections = np.nonzero(keep)
    model = statsmodels.OLS(grid[keep], np.ones(keep.sum())).fit()
    theirs = cov_cluster_2groups(model, users, injections, use_correction=False)[0].item()
    ours = sum_moments([make_spread(grid, _tally(grid, keep.astype(float)))]).variance
    assert ours == pytest.approx(theirs, rel=0.05)


def test_a_missing_case_hardly_moves_the_variance() -> None:
    grid, cases = _grid(20, 9), np.ones((20, 9))
    whole = sum_moments([make_spread(grid, _tally(grid))])
    cases[3, 4] = grid[3, 4] = 0.0
    gap = sum_moments([make_spread(grid, _tally(grid, cases))])
    assert gap.variance == pytest.approx(whole.variance, rel=0.1)
    assert gap.df == pytest.approx(whole.df, rel=0.15)


def test_one_task_of_a_kind_leaves_the_other_kind_alone() -> None:
    solved = np.array([[1.0], [0.0], [0.0], [1.0], [1.0]])
    found = sum_moments([make_spread(solved, _tally(solved))])
    assert found.variance == pytest.approx(solved.var(ddof=1) / 5)
    assert found.df == pytest.approx(4)


def test_tasks_that_each_have_a_case_of_their_own_are_no_worse_than_independent_cases() -> None:
    cases = np.eye(8)
    hits = cases * np.array([1, 0, 0, 1, 0, 1, 1, 0])
    found = sum_moments([make_spread(hits, _tally(hits, cases))])
    assert found.variance == pytest.approx(0.25 / 8, rel=0.35)


def test_variance_without_any_effect_is_never_nothing() -> None:
    for seed in range(200):
        grid = (np.random.default_rng(seed).random((6, 4)) < 0.5).astype(float)
        found = sum_moments([make_spread(grid, _tally(grid))])
        assert found.variance > 0.003 or not 0 < grid.mean() < 1


def test_scaling_and_joining_do_as_sums_of_estimates_do() -> None:
    grid, benign = _grid(10, 6), _grid(10, 1, seed=9)
    attacked, solved = make_spread(grid, _tally(grid)), make_spread(benign, _tally(benign))
    assert sum_moments([scale_spread(attacked, -3.0)]).variance == pytest.approx(
        9 * sum_moments([attacked]).variance
    )
    both = add_spreads(attacked, scale_spread(solved, 0.0))
    assert sum_moments([both]).variance == pytest.approx(sum_moments([attacked]).variance)
    cancelled = add_spreads(scale_spread(attacked, 0.0), scale_spread(solved, 1.0))
    assert sum_moments([cancelled]).variance == pytest.approx(sum_moments([solved]).variance)


def test_user_tasks_of_the_frame_without_cases_carry_nothing() -> None:
    grid = _grid(4, 3)
    counted = _tally(grid)
    wider = widen_tally(counted, (*counted.user_tasks, "user_task_98", "user_task_99"))
    wide = make_spread(wider.hijacked, wider)
    assert list(wide.users[-2:]) == [0.0, 0.0]
    assert sum_moments([wide]).bootstrap_variance > 0


def test_user_tasks_carry_both_terms_of_a_sum_and_injection_tasks_the_attacked_one() -> None:
    grid = _grid(4, 3)
    attacked = make_spread(grid, _tally(grid))
    solved = np.array([[1.0], [0.0], [0.0], [1.0]])
    benign = make_spread(solved, _tally(solved))
    both = add_spreads(attacked, benign)
    rows = (grid - grid.mean()).sum(axis=1) / 12 + (solved - 0.5)[:, 0] / 4
    assert both.users == pytest.approx(rows)
    assert both.injections == pytest.approx(attacked.injections)
