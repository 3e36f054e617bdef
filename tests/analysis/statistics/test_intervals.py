"""Intervals and standard errors where there is little to go by."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.analysis.statistics.bootstrap import Interval, Resampler
from agentsys.analysis.statistics.estimate import Estimate, Side, defense_quality, macro, rate, totals
from agentsys.analysis.statistics.intervals import proportion_interval
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally


def _estimate(hits: FloatArray, cases: FloatArray | None = None, suite: str = "suite") -> Estimate:
    users, injections = (tuple(f"{task:02d}" for task in range(count)) for count in hits.shape)
    filled = np.ones_like(hits) if cases is None else cases
    counted = Tally(suite, users, injections, filled, hits, hits, 0)
    return rate([totals(counted, Side.INJECTED, Resampler(300))])


def _interval(hits: FloatArray) -> Interval:
    return proportion_interval(_estimate(hits))


def test_no_success_leaves_room_for_about_a_single_one() -> None:
    none, one = np.zeros((16, 9)), np.zeros((16, 9))
    one[3, 4] = 1
    assert _interval(none).low == 0.0
    assert 0.02 < _interval(none).high < 0.2
    assert _interval(none).high == pytest.approx(_interval(one).high, rel=0.25)


def test_all_successes_mirror_no_success() -> None:
    assert _interval(np.ones((16, 9))).high == 1.0
    assert _interval(np.ones((16, 9))).low == pytest.approx(1 - _interval(np.zeros((16, 9))).high)


def test_benign_cases_all_solved_have_the_exact_binomial_bound() -> None:
    interval = _interval(np.ones((16, 1)))
    assert interval.low == pytest.approx(0.025 ** (1 / 16))


def test_more_tasks_without_success_leave_less_room() -> None:
    bounds = [_interval(np.zeros((count, count))).high for count in (2, 4, 8, 16, 32)]
    assert bounds == sorted(bounds, reverse=True)


def test_suites_of_one_piece_but_not_of_the_same_are_not_certain() -> None:
    mixed = macro([_estimate(np.zeros((16, 9)), suite="a"), _estimate(np.ones((20, 7)), suite="b")])
    interval = proportion_interval(mixed)
    assert interval.low < 0.5 < interval.high
    assert interval.high - interval.low < 0.2


def test_a_single_case_is_undefined() -> None:
    assert math.isnan(_interval(np.ones((1, 1))).low)


def test_defense_quality_of_a_perfect_run_is_not_certain() -> None:
    quality = defense_quality(_estimate(np.ones((16, 1))), _estimate(np.zeros((16, 9))))
    interval = proportion_interval(quality)
    assert interval.high == 1.0
    assert 0.6 < interval.low < 0.95


_GRIDS = st.integers(1, 6).flatmap(
    lambda users: st.integers(1, 5).flatmap(
        lambda injections: st.lists(
            st.lists(st.sampled_from([None, 0.0, 1.0]), min_size=injections, max_size=injections),
            min_size=users,
            max_size=users,
        )
    )
)


@settings(max_examples=300, deadline=None)
@given(grid=_GRIDS)
def test_intervals_hold_the_estimate_and_lie_in_range_on_any_grid(grid: list[list[float | None]]) -> None:
    cases = np.array([[cell is not None for cell in row] for row in grid], dtype=float)
    hits = np.array([[cell or 0.0 for cell in row] for row in grid], dtype=float)
    cases, hits = cases[cases.any(axis=1)], hits[cases.any(axis=1)]
    cases, hits = cases[:, cases.any(axis=0)], hits[:, cases.any(axis=0)]
    if not cases.size:
        return
    estimate = _estimate(hits, cases)
    interval = proportion_interval(estimate)
    if min(cases.shape) > 1:
        assert not math.isnan(interval.low)
    if not math.isnan(interval.low):
        assert 0 <= interval.low <= estimate.value <= interval.high <= 1
        assert interval.low < interval.high
