"""The variance behind intervals: closed forms, statsmodels, grids with gaps."""

from __future__ import annotations

import numpy as np
import pytest

from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.estimate import Side, rate, totals
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally
from agentsys.analysis.statistics.variance import joined, moments, scaled, spread


def _tally(hits: FloatArray, cases: FloatArray | None = None) -> Tally:
    users, injections = (tuple(f"{task:02d}" for task in range(count)) for count in hits.shape)
    return Tally("suite", users, injections, np.ones_like(hits) if cases is None else cases, hits, hits, 0)


def _grid(users: int, injections: int, seed: int = 5) -> FloatArray:
    rng = np.random.default_rng(seed)
    chance = 0.5 + 0.25 * rng.standard_normal((users, 1)) + 0.25 * rng.standard_normal((1, injections))
    return (rng.random((users, injections)) < chance).astype(float)


def test_variance_of_a_balanced_grid_is_that_of_the_analysis_of_variance() -> None:
    grid = _grid(20, 9)
    rows, columns = grid.mean(axis=1), grid.mean(axis=0)
    rest = grid - rows[:, None] - columns[None, :] + grid.mean()
    squares = 9 * rows.var(ddof=1) + 20 * columns.var(ddof=1) - (rest**2).sum() / (19 * 8)
    assert moments([spread(grid, _tally(grid))]).variance == pytest.approx(squares / 180)


def test_bootstrap_variance_is_that_of_the_replicates() -> None:
    grid = _grid(12, 6)
    cases = np.random.default_rng(2).integers(0, 3, size=(12, 6)).astype(float) + (np.arange(6) == 0)
    for counted in (_tally(grid), _tally(np.minimum(grid, cases), cases)):
        estimate = rate([totals(counted, Side.INJECTED, Resampler(20_000))])
        found = moments(estimate.spreads).bootstrap_variance
        assert found == pytest.approx(estimate.draws.var(), rel=0.06)


def test_variance_agrees_with_statsmodels_two_way_clustering() -> None:
    statsmodels = pytest.importorskip("statsmodels.api")
    from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

    keep = np.random.default_rng(3).random((60, 40)) < 0.8
    grid = _grid(60, 40) * keep
    users, injections = np.nonzero(keep)
    model = statsmodels.OLS(grid[keep], np.ones(keep.sum())).fit()
    theirs = cov_cluster_2groups(model, users, injections, use_correction=False)[0].item()
    ours = moments([spread(grid, _tally(grid, keep.astype(float)))]).variance
    assert ours == pytest.approx(theirs, rel=0.05)


def test_repeated_cases_count_as_one_cell_each() -> None:
    grid = _grid(10, 6)
    once, thrice = _tally(grid), _tally(3 * grid, np.full_like(grid, 3.0))
    assert moments([spread(3 * grid, thrice)]).variance == pytest.approx(
        moments([spread(grid, once)]).variance
    )


def test_a_missing_case_hardly_moves_the_variance() -> None:
    grid, cases = _grid(20, 9), np.ones((20, 9))
    whole = moments([spread(grid, _tally(grid))])
    cases[3, 4] = grid[3, 4] = 0.0
    gap = moments([spread(grid, _tally(grid, cases))])
    assert gap.variance == pytest.approx(whole.variance, rel=0.1)
    assert gap.df == pytest.approx(whole.df, rel=0.15)


def test_one_task_of_a_kind_leaves_the_other_kind_alone() -> None:
    solved = np.array([[1.0], [0.0], [0.0], [1.0], [1.0]])
    found = moments([spread(solved, _tally(solved))])
    assert found.variance == pytest.approx(solved.var(ddof=1) / 5)
    assert found.df == pytest.approx(4)


def test_tasks_that_each_have_a_case_of_their_own_are_no_worse_than_independent_cases() -> None:
    cases = np.eye(8)
    hits = cases * np.array([1, 0, 0, 1, 0, 1, 1, 0])
    found = moments([spread(hits, _tally(hits, cases))])
    assert found.variance == pytest.approx(0.25 / 8, rel=0.35)


def test_variance_without_any_effect_is_never_nothing() -> None:
    for seed in range(200):
        grid = (np.random.default_rng(seed).random((6, 4)) < 0.5).astype(float)
        found = moments([spread(grid, _tally(grid))])
        assert found.variance > 0.003 or not 0 < grid.mean() < 1


def test_scaling_and_joining_do_as_sums_of_estimates_do() -> None:
    grid, benign = _grid(10, 6), _grid(10, 1, seed=9)
    attacked, solved = spread(grid, _tally(grid)), spread(benign, _tally(benign))
    assert moments([scaled(attacked, -3.0)]).variance == pytest.approx(9 * moments([attacked]).variance)
    both = joined(attacked, scaled(solved, 0.0))
    assert moments([both]).variance == pytest.approx(moments([attacked]).variance)
    cancelled = joined(scaled(attacked, 0.0), scaled(solved, 1.0))
    assert moments([cancelled]).variance == pytest.approx(moments([solved]).variance)


def test_user_tasks_of_the_frame_without_cases_carry_nothing() -> None:
    grid = _grid(4, 3)
    counted = _tally(grid)
    wide = spread(grid, counted, (*counted.user_tasks, "98", "99"))
    assert list(wide.users[-2:]) == [0.0, 0.0]
    assert moments([wide]).bootstrap_variance > 0


def test_user_tasks_carry_both_terms_of_a_sum_and_injection_tasks_the_attacked_one() -> None:
    grid = _grid(4, 3)
    attacked = spread(grid, _tally(grid))
    solved = np.array([[1.0], [0.0], [0.0], [1.0]])
    benign = spread(solved, _tally(solved))
    both = joined(attacked, benign)
    rows = (grid - grid.mean()).sum(axis=1) / 12 + (solved - 0.5)[:, 0] / 4
    assert both.users == pytest.approx(rows)
    assert both.injections == pytest.approx(attacked.injections)
