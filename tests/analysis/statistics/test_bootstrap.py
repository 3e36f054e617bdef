"""The two-way bootstrap against brute force, closed forms and its own promises."""

from __future__ import annotations

import numpy as np
import pytest
from stored_cases import row

from agentsys.analysis.statistics.bootstrap import Resampler, percentile_interval, resampled_total
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally, tally


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
    hits = resampled_total(counted.hijacked, counted, sampler)
    return hits / resampled_total(counted.cases, counted, sampler)


def _two_way_grid(users: int, injections: int) -> FloatArray:
    """Outcomes with strong effects of both kinds of task."""
    rng = np.random.default_rng(5)
    chance = 0.5 + 0.3 * rng.standard_normal((users, 1)) + 0.3 * rng.standard_normal((1, injections))
    return (rng.random((users, injections)) < chance).astype(float)


def test_who_resamples_alike_shares_draws_and_another_seed_or_number_has_its_own() -> None:
    drawn = ("suite", "user", ("user_task_0", "user_task_1", "user_task_2"))
    first = Resampler(50).weights(*drawn)
    assert Resampler(50).weights(*drawn) is first
    assert (Resampler(50, seed=1).weights(*drawn) != first).any()
    assert Resampler(60).weights(*drawn).shape == (60, 3)


def test_standard_error_equals_the_closed_form_on_a_balanced_grid() -> None:
    grid = _two_way_grid(20, 9)
    rows, columns = grid.mean(axis=1), grid.mean(axis=0)
    rest = grid - rows[:, None] - columns[None, :] + grid.mean()
    exact = np.sqrt(rows.var() / 20 + columns.var() / 9 + rest.var() / 180)
    assert _rates(_tally(grid)).std() == pytest.approx(exact, rel=0.03)


def test_standard_error_equals_brute_force_with_repeated_cases_and_gaps() -> None:
    rng = np.random.default_rng(8)
    cases = rng.integers(0, 3, size=(12, 5)).astype(float)
    cases[:, 0] += 1
    hits = np.minimum(cases, _two_way_grid(12, 5) * 2)
    brute = []
    for _ in range(6000):
        users, injections = rng.integers(0, 12, 12), rng.integers(0, 5, 5)
        chosen = np.ix_(users, injections)
        brute.append(hits[chosen].sum() / cases[chosen].sum())
    ours = _rates(_tally(hits, cases))
    assert ours.std() == pytest.approx(np.std(brute), rel=0.05)
    assert np.percentile(ours, [2.5, 97.5]) == pytest.approx(np.percentile(brute, [2.5, 97.5]), abs=0.03)


def test_standard_error_is_wider_than_the_one_that_forgets_the_clusters() -> None:
    grid = _two_way_grid(20, 9)
    naive = np.sqrt(grid.mean() * (1 - grid.mean()) / grid.size)
    assert _rates(_tally(grid)).std() > 1.5 * naive


def test_benign_cases_are_resampled_by_user_task_alone() -> None:
    solved = np.array([[1.0], [0.0]] * 20)
    assert _rates(_tally(solved)).std() == pytest.approx(np.sqrt(0.25 / 40), rel=0.03)


def test_interval_of_normal_draws_holds_the_middle_95_percent() -> None:
    interval = percentile_interval(np.random.default_rng(1).standard_normal(200_000))
    assert (interval.low, interval.high) == pytest.approx((-1.96, 1.96), abs=0.02)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for seed in range(150):
        users, injections = rng.normal(0, 0.15, (25, 1)), rng.normal(0, 0.15, (1, 12))
        grid = (rng.random((25, 12)) < np.clip(0.5 + users + injections, 0, 1)).astype(float)
        interval = percentile_interval(_rates(_tally(grid), 400, seed))
        covered += interval.low <= 0.5 <= interval.high
    assert 0.86 <= covered / 150 <= 1.0


def test_same_seed_same_draws_other_seed_others() -> None:
    counted = _tally(_two_way_grid(8, 4))
    assert (_rates(counted, 100) == _rates(counted, 100)).all()
    assert (_rates(counted, 100) != _rates(counted, 100, seed=1)).any()


def test_users_and_injections_with_the_same_ids_are_drawn_independently() -> None:
    sampler, ids = Resampler(5000), tuple("abcdefgh")
    users, injections = sampler.weights("s", "user", ids), sampler.weights("s", "injection", ids)
    assert abs(np.corrcoef(users[:, 0], injections[:, 0])[0, 1]) < 0.05
    assert (users.sum(axis=1) == 8).all()


def test_nothing_to_resample_is_undefined_and_not_certain() -> None:
    single = tally("banking", [row()], ErrorRule.REPORT)
    assert np.isnan(_rates(single, 50)).all()
    assert np.isnan(percentile_interval(_rates(single, 50)).low)


def test_a_task_whose_cases_all_errored_is_no_cluster() -> None:
    lost = row(user_task_id="user_task_1", status="error", error_kind="timeout")
    counted = tally("banking", [row(), lost], ErrorRule.REPORT)
    assert (counted.user_tasks, counted.errors) == (("user_task_0",), 1)
    assert np.isnan(_rates(counted, 50)).all()


def test_totals_of_cases_are_made_once_for_the_same_cases_and_anew_for_others() -> None:
    sampler, hits = Resampler(50), _two_way_grid(4, 3)
    gaps = np.ones_like(hits)
    gaps[0, 0] = 0
    first = sampler.case_totals(_tally(hits))
    assert sampler.case_totals(_tally(1 - hits)) is first
    assert np.array_equal(first, resampled_total(np.ones_like(hits), _tally(hits), Resampler(50)))
    fewer, wider = _tally(hits * gaps, gaps), tuple(f"user_task_{i:02d}" for i in range(6))
    for counted, frame in ((fewer, None), (_tally(hits), wider), (_tally(hits[:, :2]), None)):
        expected = resampled_total(counted.cases, counted, Resampler(50), frame)
        assert np.array_equal(sampler.case_totals(counted, frame), expected)
        assert not np.array_equal(expected, first)
