"""Intervals of rates: edge cases, suites with a single user task, and coverage."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from asb_cases import AGENTS, benign, control, grid
from hypothesis import given, settings
from hypothesis import strategies as st
from interval_simulation import UNDEFENDED, Setting, coverage
from paired_grids import tally_of
from scipy import stats
from stored_cases import row

from agentsys.analysis.metrics.comparison import compare_sides
from agentsys.analysis.metrics.rates import MetricRow, measure
from agentsys.analysis.statistics.case_outcomes import pair_cases
from agentsys.analysis.statistics.difference_test import compute_p_value
from agentsys.analysis.statistics.differences import SignDraws, compare_pairs
from agentsys.analysis.statistics.outcome_grid import FloatArray, Interval, Resampler, Side
from agentsys.analysis.statistics.rate_estimates import (
    MARGIN,
    Estimate,
    compute_defense_quality,
    compute_proportion_interval,
    estimate_mean_rate,
    estimate_pooled_rate,
    estimate_standard_error,
)
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.records.case_reader import LoadedCases


def _estimate(hits: FloatArray, cases: FloatArray | None = None) -> Estimate:
    return estimate_pooled_rate([tally_of(hits, cases)], Side.INJECTED, Resampler(300))


def _interval(hits: FloatArray) -> Interval:
    return compute_proportion_interval(_estimate(hits))


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


def test_suites_of_one_piece_but_not_of_the_same_are_not_certain() -> None:
    suites = [tally_of(np.zeros((16, 9)), suite="a"), tally_of(np.ones((20, 7)), suite="b")]
    interval = compute_proportion_interval(estimate_mean_rate(suites, Side.INJECTED, Resampler(300)))
    assert interval.low < 0.5 < interval.high
    assert interval.high - interval.low < 0.2


def test_a_single_case_is_undefined() -> None:
    assert math.isnan(_interval(np.ones((1, 1))).low)


def test_defense_quality_of_a_perfect_run_is_not_certain() -> None:
    quality = compute_defense_quality(_estimate(np.ones((16, 1))), _estimate(np.zeros((16, 9))))
    interval = compute_proportion_interval(quality)
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
    interval = compute_proportion_interval(estimate)
    if min(cases.shape) > 1:
        assert not math.isnan(interval.low)
    if not math.isnan(interval.low):
        assert 0 <= interval.low <= estimate.value <= interval.high <= 1
        assert interval.low < interval.high


HITS = {"a": 8, "b": 4, "c": 1}


def _overall(rows: list[MetricRow], metric: str = "targeted_asr", suite: str = "overall") -> MetricRow:
    (found,) = [row for row in rows if (row.metric, row.suite) == (metric, suite)]
    return found


def test_the_standard_error_is_that_of_the_suites_rates() -> None:
    rates = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]], dtype=float)
    suites = [tally_of(rates[n : n + 1], suite=str(n)) for n in range(len(rates))]
    drawn = Side.INJECTED, Resampler(20_000)
    error = estimate_standard_error(estimate_mean_rate(suites, *drawn))
    assert error.value == pytest.approx(MARGIN * rates.mean(axis=1).std(ddof=1) / math.sqrt(5), rel=0.03)
    assert error.df == pytest.approx(4)
    assert estimate_standard_error(estimate_pooled_rate(suites, *drawn)).value == pytest.approx(
        error.value, rel=0.03
    )


def test_each_suite_carries_what_sets_it_apart_from_the_others() -> None:
    grids = np.array([[1.0, 0, 0, 0]]), np.array([[1.0] * 6 + [0, 0]])
    suites = [tally_of(grid, suite=name) for name, grid in zip("ab", grids, strict=True)]
    drawn = Side.INJECTED, Resampler(10)
    (mean,) = estimate_mean_rate(suites, *drawn).spreads
    assert mean.users == pytest.approx([-0.125, 0.125])  # rates 1/4 and 3/4, their mean 1/2
    (pooled,) = estimate_pooled_rate(suites, *drawn).spreads
    assert pooled.users == pytest.approx([-(4 / 3) / 12, (4 / 3) / 12])  # 7/12 of all cases


def test_ten_agents_give_an_interval_several_times_wider_than_independent_cases_would() -> None:
    found = _overall(measure(grid(HITS)))
    assert found.value == 16.25
    naive = 196 * math.sqrt(0.1625 * 0.8375 / 80)
    assert found.ci_high - found.value > 1.5 * naive
    assert found.ci_low < found.value < found.ci_high


def test_one_suite_with_a_second_user_task_brings_the_tasks_back() -> None:
    cases = grid(HITS)
    second = [replace(case, user_task_id="user_task_1") for case in cases if case.suite == "a"]
    clustered, mixed = _overall(measure(cases)), _overall(measure([*cases, *second]))
    assert clustered.value == mixed.value
    assert mixed.ci_high - mixed.ci_low < 0.7 * (clustered.ci_high - clustered.ci_low)


def test_a_single_suite_is_resampled_by_its_injection_tasks_as_before() -> None:
    cases = [case for case in grid(HITS) if case.suite == "b"]
    rows = measure(cases)
    assert _overall(rows).ci_low == _overall(rows, suite="b").ci_low
    many = measure(grid(HITS))
    assert _overall(many, suite="b").ci_high == pytest.approx(_overall(rows, suite="b").ci_high, rel=1e-9)


def test_benign_tasks_of_ten_suites_have_the_binomial_bound() -> None:
    found = _overall(measure([benign(agent) for agent in AGENTS]), "benign_utility")
    assert (found.value, found.ci_high) == (100.0, 100.0)
    assert found.ci_low == pytest.approx(100 * 0.025 ** (1 / 10), abs=1e-6)


def test_defense_quality_has_an_interval_and_draws_the_same_suites() -> None:
    cases = [*grid(HITS), *[benign(agent, solved=agent != "a") for agent in AGENTS]]
    found = _overall(measure(cases), "defense_quality")
    assert found.value == pytest.approx(90 * (1 - 0.1625))
    assert 0 < found.ci_low < found.value < found.ci_high < 100


def test_an_errored_suite_makes_the_overall_undefined_and_the_pooled_rate_is_of_the_others() -> None:
    cases = [replace(c, status="error") if c.suite == "j" else c for c in grid(HITS)]
    rows = measure(cases)
    assert math.isnan(_overall(rows).value)
    pooled = _overall(rows, suite="pooled")
    assert pooled.value == pytest.approx(100 * 13 / 72)
    assert pooled.ci_low < pooled.value < pooled.ci_high


def test_defenses_are_compared_by_suites() -> None:
    cases = [*grid(HITS, defense="none"), *grid({"a": 7}, defense="agentsys")]
    rows = [r for r in compare_sides(cases).rows if r.metric == "targeted_asr" and r.cases == "all"]
    (overall,) = [r for r in rows if r.suite == "overall"]
    assert overall.difference == -7.5
    # By hand: differences per suite -1/8, -4/8, -1/8 and seven times 0. The three that differ agree in sign,
    # which one flip in four does as well; the t test has 9 degrees of freedom.
    differences = np.array([-0.125, -0.5, -0.125, *[0.0] * 7])
    error = differences.std(ddof=1) / math.sqrt(10)
    t_test = 2 * stats.t.sf(abs(differences.mean()) / error, 9)
    expected = np.mean([math.tan(math.pi * (0.5 - p)) for p in (0.25, t_test)])
    assert overall.p == pytest.approx(0.5 - math.atan(expected) / math.pi)
    assert overall.ci_low < -7.5 < 0.0 < overall.ci_high
    assert overall.smallest_detectable > 7.5


def test_suites_that_all_differ_by_the_same_part_are_a_sign_test_of_suites() -> None:
    first, second = grid(dict.fromkeys(AGENTS, 4)), grid({}, defense="none")
    pairs = pair_cases(second, first).pairs
    for level in ("overall", "pooled"):
        difference = compare_pairs(pairs, Side.INJECTED, SignDraws(99))[level]
        assert difference.value == 0.5
        assert compute_p_value(difference) == 2.0**-9


def test_a_footnote_says_what_was_resampled() -> None:
    cases = [*grid(HITS), *[benign(agent) for agent in AGENTS], control("a", 0)]
    notes = " ".join(tuple(write_report_notes(ResultFrame(LoadedCases(tuple(cases))))))
    assert "asb-faithful sample: every suite has a single user task" in notes
    assert "resample the 10 suites in their place" in notes
    ordinary = [row(suite=s, user_task_id=f"user_task_{n}") for s in ("x", "y") for n in range(2)]
    assert "in their place" not in " ".join(
        tuple(write_report_notes(ResultFrame(LoadedCases(tuple(ordinary)))))
    )


def test_intervals_hold_the_truth_where_agents_differ_moderately() -> None:
    setting = Setting((-0.6,) * 10, 1.0, 0.0, 0.0, ((1, 40),) * 10)
    assert coverage(setting, 150, replicates=200).calibrated >= 0.92


def test_plain_percentile_intervals_are_too_wide_without_effects_of_tasks() -> None:
    assert coverage(Setting(user=0.0, injection=0.0), 400, seed=3).percentile > 0.99


def test_plain_percentile_intervals_are_too_narrow_where_few_injection_tasks_decide() -> None:
    assert coverage(Setting(user=1.0, injection=3.0), 400, seed=3).percentile < 0.95


def test_truth_is_the_mean_of_what_is_generated() -> None:
    setting = Setting(means=(-1.0,), user=1.0, injection=1.0, shape=((300, 300),))
    rng = np.random.default_rng(4)
    logits = -1.0 + rng.standard_normal((1500, 1)) + rng.standard_normal((1, 1500))
    assert setting.truth == pytest.approx((1 / (1 + np.exp(-logits))).mean(), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("means", [UNDEFENDED, (0.0,) * 4, (-3.0,) * 4, (1.5,) * 4], ids=str)
@pytest.mark.parametrize(
    ("user", "injection", "pair"), [(0, 0, 0), (1, 0, 0), (1, 1.5, 1), (2, 2.5, 0), (1, 3, 0)]
)
def test_intervals_hold_over_many_runs(
    means: tuple[float, ...], user: float, injection: float, pair: float
) -> None:
    setting = Setting(means, user, injection, pair)
    assert 0.94 <= coverage(setting, 2000, replicates=500, seed=5).calibrated <= 0.99
