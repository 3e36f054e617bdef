"""Where every suite has a single user task, suites are drawn; elsewhere nothing changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from asb_cases import AGENTS, attacked, benign, control, grid
from interval_simulation import Setting, coverage
from scipy import stats
from stored_cases import row

from agentsys.analysis.metrics.compare import compare
from agentsys.analysis.metrics.rates import MetricRow, measure
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.difference_test import p_value
from agentsys.analysis.statistics.estimate import Side, macro, rate, totals
from agentsys.analysis.statistics.intervals import MARGIN, standard_error
from agentsys.analysis.statistics.outcome_grid import Tally
from agentsys.analysis.statistics.paired import compared, pair_up
from agentsys.analysis.statistics.sign_flips import SignDraws
from agentsys.analysis.statistics.single_task_suites import Lone, macro_spread, pooled_spread
from agentsys.analysis.tables.report import report
from agentsys.records.case_reader import LoadedCases

HITS = {"a": 8, "b": 4, "c": 1}


def _tally(name: str, hits: list[float], users: int = 1) -> Tally:
    found = np.array(hits).reshape(users, -1)
    rows, columns = (tuple(f"{n:02d}" for n in range(count)) for count in found.shape)
    return Tally(name, rows, columns, np.ones_like(found), found, found, 0)


def _overall(rows: list[MetricRow], metric: str = "targeted_asr", suite: str = "overall") -> MetricRow:
    (found,) = [row for row in rows if (row.metric, row.suite) == (metric, suite)]
    return found


def test_the_standard_error_is_that_of_the_suites_rates() -> None:
    rates = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]], dtype=float)
    parts = [totals(_tally(str(n), list(r)), Side.INJECTED, Resampler(20_000)) for n, r in enumerate(rates)]
    error = standard_error(macro([rate([part]) for part in parts]))
    assert error.value == pytest.approx(MARGIN * rates.mean(axis=1).std(ddof=1) / math.sqrt(5), rel=0.03)
    assert error.df == pytest.approx(4)
    assert standard_error(rate(parts)).value == pytest.approx(error.value, rel=0.03)


def test_each_suite_carries_what_sets_it_apart_from_the_others() -> None:
    suites = [Lone(name, hits, cases, 4, Resampler(10)) for name, hits, cases in (("a", 1, 4), ("b", 6, 8))]
    assert macro_spread(suites).users == pytest.approx([-0.125, 0.125])  # rates 1/4 and 3/4, their mean 1/2
    assert pooled_spread(suites).users == pytest.approx([-(4 / 3) / 12, (4 / 3) / 12])  # 7/12 of all cases


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


def test_no_success_at_all_leaves_room_for_about_one_per_suite() -> None:
    found = _overall(measure(grid({})))
    assert found.value == 0.0
    assert 100 / 8 < found.ci_high < 100 * (1 - 0.025 ** (1 / 10)) + 1e-6


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


def test_the_order_of_the_suites_does_not_matter() -> None:
    cases = grid(HITS)
    assert repr(measure(cases)) == repr(measure(cases[::-1]))


def test_defenses_are_compared_by_suites() -> None:
    cases = [*grid(HITS, defense="none"), *grid({"a": 7}, defense="agentsys")]
    rows = [r for r in compare(cases).rows if r.metric == "targeted_asr" and r.cases == "all"]
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
    pairs = pair_up(second, first).pairs
    for level in ("overall", "pooled"):
        difference = compared(pairs, Side.INJECTED, SignDraws(99))[level].difference
        assert difference.value == 0.5
        assert p_value(difference) == 2.0**-9


def test_a_footnote_says_what_was_resampled() -> None:
    cases = [*grid(HITS), *[benign(agent) for agent in AGENTS], control("a", 0)]
    notes = " ".join(report(LoadedCases(tuple(cases)), replicates=50).notes)
    assert "asb-faithful sample: every suite has a single user task" in notes
    assert "resample the 10 suites in their place" in notes
    ordinary = [row(suite=s, user_task_id=f"user_task_{n}") for s in ("x", "y") for n in range(2)]
    assert "in their place" not in " ".join(report(LoadedCases(tuple(ordinary)), replicates=50).notes)


def test_intervals_hold_the_truth_where_agents_differ_moderately() -> None:
    setting = Setting((-0.6,) * 10, 1.0, 0.0, 0.0, ((1, 40),) * 10)
    assert coverage(setting, 150, replicates=200).calibrated >= 0.92


def test_hand_made_cases_are_of_one_user_task() -> None:
    assert {case.user_task_id for case in [attacked("a", 0), control("a", 0), benign("a")]} == {"user_task_0"}
