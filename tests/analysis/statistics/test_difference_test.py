"""The paired test and the interval that inverts it: symmetries, agreement, and grids with little in them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from paired_grids import difference_of, grid_of, tally_of
from scipy import stats

from agentsys.analysis.statistics.difference_test import (
    LEVEL,
    compute_difference_interval,
    compute_p_value,
    compute_smallest_detectable,
)
from agentsys.analysis.statistics.differences import (
    PairedGrid,
    SignDraws,
    make_mean_difference,
    make_pooled_difference,
)
from agentsys.analysis.statistics.outcome_grid import FloatArray, Side
from agentsys.analysis.statistics.rate_estimates import compute_lone_bound, compute_t_quantile

_PAIRS = 200
"""Generated pairs on which p and interval must agree; 10^4 take two minutes."""


def _change(users: int, injections: int, shares: tuple[float, float], seed: int) -> FloatArray:
    """-1 and 1 with these probabilities, else 0."""
    drawn = np.random.default_rng(seed).random((users, injections))
    return np.where(drawn < shares[0], -1.0, np.where(drawn > 1 - shares[1], 1.0, 0.0))


def _with_gaps(
    change: FloatArray, share: float, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Leave out this share of the cases, and the tasks that have none left."""
    cases = (generator.random(change.shape) >= share).astype(float)
    cases[0, 0] = 1.0
    users, injections = cases.any(axis=1), cases.any(axis=0)
    return (change * cases)[users][:, injections], cases[users][:, injections]


def _mirrored(grid: PairedGrid) -> PairedGrid:
    return replace(grid, before=grid.after, after=grid.before)


def _combined(*p_values: float) -> float:
    mean = np.mean([math.tan(math.pi * (0.5 - min(p, 0.9))) for p in p_values])
    return 0.5 - math.atan(mean) / math.pi


def test_p_combines_the_larger_flip_p_with_the_t_test() -> None:
    difference = difference_of(_change(9, 6, (0.4, 0.1), 1))
    flips = max(reference.compute_p(0.0) for reference in difference.references)
    error = difference.error
    t_test = 2 * stats.t.sf(abs(difference.value) / error.value, error.df)
    assert compute_p_value(difference) == pytest.approx(_combined(flips, t_test))


def test_balanced_grid_has_the_textbook_error() -> None:
    change = _change(8, 6, (0.4, 0.1), 2)
    rows, columns = change.mean(axis=1), change.mean(axis=0)
    rest = change - rows[:, None] - columns + change.mean()
    by_user, by_injection = rows.var(ddof=1) / 8, columns.var(ddof=1) / 6
    cell = (rest**2).sum() / (7 * 5) / 48
    expected = max(by_user + by_injection - cell, by_user, by_injection)
    assert difference_of(change).error.value == pytest.approx(math.sqrt(expected))


def test_p_is_below_5_percent_exactly_where_the_interval_leaves_out_zero() -> None:
    generator, seen = np.random.default_rng(3), set()
    for seed in range(_PAIRS):
        shapes = [(int(u), int(i)) for u, i in generator.integers(1, 14, (generator.integers(1, 4), 2))]
        shares = tuple(generator.random(2) * generator.choice([0.03, 0.2, 0.5], 2))
        changes = [_change(*shape, (shares[0], shares[1]), 10 * seed + n) for n, shape in enumerate(shapes)]
        grids = [
            grid_of(*_with_gaps(change, seed % 3 / 4, generator), suite=str(n), draws=199)
            for n, change in enumerate(changes)
        ]
        difference = (make_mean_difference if seed % 4 else make_pooled_difference)(grids)
        interval, p = compute_difference_interval(difference), compute_p_value(difference)
        assert math.isnan(p) == math.isnan(interval.low)
        if math.isnan(p):
            continue
        assert 0 < p <= 1 and interval.low < interval.high
        assert (p < LEVEL) is not (interval.low <= 0 <= interval.high), (seed, p, interval)
        assert -1 <= interval.low <= difference.value + 1e-12
        assert difference.value - 1e-12 <= interval.high <= 1
        seen.add(p < LEVEL)
    assert seen == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_swapping_the_defenses_mirrors_the_interval_and_keeps_p(seed: int) -> None:
    grids = [grid_of(_change(14, 8, (0.3, 0.1), seed + n), suite=f"{n}") for n in range(3)]
    there, back = make_mean_difference(grids), make_mean_difference([_mirrored(grid) for grid in grids])
    assert compute_p_value(there) == compute_p_value(back)
    one, other = compute_difference_interval(there), compute_difference_interval(back)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-12)


def test_order_of_the_suites_does_not_matter() -> None:
    grids = [grid_of(_change(14, 8, (0.3, 0.2), n), suite=f"{n}") for n in range(3)]
    assert compute_p_value(make_mean_difference(grids)) == compute_p_value(make_mean_difference(grids[::-1]))
    assert compute_p_value(make_pooled_difference(grids)) == compute_p_value(
        make_pooled_difference(grids[::-1])
    )


def test_the_same_seed_gives_the_same_p_and_another_nearly_the_same() -> None:
    change = _change(20, 14, (0.3, 0.2), 3)
    p_values = [compute_p_value(difference_of(change, seed=seed)) for seed in (0, 0, 1, 2, 3)]
    assert p_values[0] == p_values[1]
    assert len(set(p_values)) > 2
    assert max(p_values) - min(p_values) < 0.01


def test_a_defense_that_stops_few_scattered_successes_is_told_apart() -> None:
    generator = np.random.default_rng(4)
    shapes = ((16, 9), (21, 5), (20, 7), (40, 14))
    grids = [
        grid_of(-(generator.random(shape) < 0.05).astype(float), suite=str(n))
        for n, shape in enumerate(shapes)
    ]
    assert compute_p_value(make_mean_difference(grids)) < 0.01


def test_no_case_differs() -> None:
    for difference in (difference_of(np.zeros((16, 9))), make_mean_difference([grid_of(np.zeros((9, 3)))])):
        bound = compute_lone_bound(difference.spreads)
        assert compute_p_value(difference) == 1.0
        interval = compute_difference_interval(difference)
        assert (interval.low, interval.high) == (-bound, bound)
        assert 0.02 < bound < 0.6
        assert compute_smallest_detectable(difference) == bound


def test_every_case_differs_alike() -> None:
    difference = difference_of(-np.ones((16, 9)))
    assert compute_p_value(difference) == 2 / 2**9  # nine injection tasks are the rarer kind
    interval = compute_difference_interval(difference)
    assert (interval.low, interval.high) == (-1.0, -1.0 + compute_lone_bound(difference.spreads))


def test_two_cases_prove_nothing() -> None:
    difference = difference_of(-np.ones((2, 1)))
    assert compute_p_value(difference) == 0.5
    assert compute_difference_interval(difference).high == 0.0


def test_one_case_is_undefined() -> None:
    difference = difference_of(-np.ones((1, 1)))
    assert math.isnan(compute_p_value(difference))
    assert math.isnan(compute_difference_interval(difference).low)
    assert math.isnan(compute_smallest_detectable(difference))


def test_suites_that_differ_in_opposite_ways_do_not_add_up_to_a_difference() -> None:
    opposite = make_mean_difference(
        [grid_of(np.ones((5, 5)), suite="a"), grid_of(-np.ones((5, 5)), suite="b")]
    )
    assert compute_p_value(opposite) == 1.0
    assert compute_difference_interval(opposite).low < 0 < compute_difference_interval(opposite).high


def test_one_injection_task_is_a_sign_test_of_user_tasks() -> None:
    """Benign cases, and attacks without a goal: user tasks alone are drawn."""
    change = -np.array([[1.0]] * 8 + [[0.0]] * 2)
    difference = difference_of(change)
    assert len(difference.references) == 1
    assert difference.references[0].compute_p(0.0) == 2 / 2**8
    t_test = 2 * stats.t.sf(0.8 / (change.std(ddof=1) / math.sqrt(10)), 9)
    assert compute_p_value(difference) == pytest.approx(_combined(2 / 2**8, t_test))


def test_one_user_task_in_one_suite_is_a_single_cluster_there() -> None:
    alone = grid_of(-np.ones((1, 6)), suite="a")
    other = grid_of(_change(6, 6, (0.5, 0.0), 1), suite="b")
    mixed = make_mean_difference([alone, other])
    by_user, by_injection = mixed.references
    assert len(by_user.suites[0].signs) == 2**6  # seven clusters of user tasks, one sign fixed
    assert len(by_injection.suites[0].signs) == 2**11
    assert 0 < compute_p_value(mixed) < 0.1
    assert len(make_mean_difference([alone]).references) == 1


def test_one_user_task_in_every_suite_makes_the_suites_the_clusters() -> None:
    grids = [grid_of(_change(1, 40, (0.1 + 0.05 * n, 0.0), n), suite=f"{n}") for n in range(10)]
    difference = make_mean_difference(grids)
    rates = np.array([grid.change.mean() for grid in grids])
    assert difference.error.value == pytest.approx(rates.std(ddof=1) / math.sqrt(10))
    assert difference.error.df == pytest.approx(9)
    (suites,) = difference.references
    assert suites.compute_p(0.0) == 2 / 2**10
    assert difference.n == 400


def test_pooled_suites_of_one_user_task_weigh_by_their_cases() -> None:
    grids = [grid_of(-np.ones((1, 2)), suite="a"), grid_of(np.zeros((1, 6)), suite="b")]
    assert make_mean_difference(grids).value == pytest.approx(-0.5)
    assert make_pooled_difference(grids).value == pytest.approx(-0.25)
    assert make_pooled_difference(grids).n == 8


def test_two_injection_tasks_leave_the_t_test_at_half_its_strength() -> None:
    change = np.tile(np.where(np.arange(20) % 5 < 4, -1.0, 0.0)[:, None], (1, 2))
    difference = difference_of(change)
    error = difference.error
    t_test = 2 * stats.t.sf(abs(difference.value) / error.value, error.df)
    assert compute_p_value(difference) == pytest.approx(2 * t_test, rel=0.05)


def test_gaps_and_epochs_count_by_cases() -> None:
    cases = np.array([[3.0, 0.0, 1.0], [3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [2.0, 2.0, 2.0]])
    change = np.array([[-2.0, 0.0, 0.0], [-3.0, 1.0, 0.0], [0.0, -1.0, 0.0], [-1.0, 0.0, 1.0]])
    difference = difference_of(change, cases)
    assert difference.value == pytest.approx(-5 / 18)
    assert difference.n == 18
    interval = compute_difference_interval(difference)
    assert interval.low < difference.value < 0 < interval.high
    assert 0.05 < compute_p_value(difference) < 1


def test_twice_the_epochs_with_the_same_outcomes_change_nothing_of_the_flips() -> None:
    change = _change(13, 8, (0.4, 0.1), 9)
    once, twice = difference_of(change), difference_of(2 * change, np.full((13, 8), 2.0))
    assert [reference.compute_p(0.0) for reference in once.references] == [
        r.compute_p(0.0) for r in twice.references
    ]


def test_where_no_case_points_the_other_way_the_defense_may_still_be_worse() -> None:
    change = np.zeros((16, 9))
    change[3, 4] = change[7, 1] = -1.0
    difference = difference_of(change)
    interval = compute_difference_interval(difference)
    assert compute_p_value(difference) > LEVEL
    assert interval.low < difference.value < 0 < interval.high


def test_where_a_defense_stops_everything_the_far_end_is_that_of_the_baselines_rate() -> None:
    hits = (np.random.default_rng(6).random((20, 14)) < 0.05).astype(float)
    difference = difference_of(-hits)
    p, error = hits.mean(), difference.error
    cases = p * (1 - p) / max((1.05 * error.value) ** 2, p * (1 - p) / hits.size)
    t = compute_t_quantile(0.975, error.df)
    upper = (p + t**2 / 2 / cases + t * math.sqrt((p * (1 - p) + t**2 / 4 / cases) / cases)) / (
        1 + t**2 / cases
    )
    assert compute_difference_interval(difference).low == pytest.approx(-upper)


def test_smallest_detectable_difference_is_the_textbooks_multiple_of_the_standard_error() -> None:
    difference = difference_of(-(np.random.default_rng(1).random((40, 30)) < 0.4).astype(float))
    multiple = compute_t_quantile(0.975, difference.error.df) + compute_t_quantile(0.8, difference.error.df)
    assert compute_smallest_detectable(difference) == pytest.approx(multiple * difference.error.value)
    assert multiple == pytest.approx(1.96 + 0.8416, rel=0.1)


def test_rates_that_go_together_have_a_shorter_interval_than_the_same_rates_apart() -> None:
    """The end away from 0, which the correlation of both rates draws in: the same margins, paired in two ways."""
    generator = np.random.default_rng(7)
    before = (generator.random((14, 8)) < generator.random((14, 1))).astype(float)
    together = np.maximum(before, (generator.random(before.shape) < 0.15).astype(float))
    apart = together[generator.permutation(14)]
    reaches = []
    for after in (together, apart):
        grid = PairedGrid(tally_of(before), tally_of(after), Side.SOLVED, SignDraws(199, 0))
        difference = make_mean_difference([grid])
        assert difference.value > 0
        reaches.append(compute_difference_interval(difference).high - difference.value)
    assert reaches[0] < 0.6 * reaches[1]
