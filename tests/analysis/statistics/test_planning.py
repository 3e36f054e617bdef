"""How many cases a difference needs: against generated runs of that size, and where the answer is plain."""

from __future__ import annotations

import math

import pytest
from paired_simulation import PairedSetting, judged

from agentsys.analysis.statistics.planning import (
    INJECTION,
    OWN,
    PAIR,
    USER,
    PlannedSuite,
    cases_needed,
    epochs_needed,
)

_AGENTDOJO = tuple(PlannedSuite(*shape) for shape in ((16, 9), (21, 5), (20, 7), (40, 14)))
_AGENTS = (PlannedSuite(1, 40),) * 10


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.2), (0.1, 0.05)])
def test_runs_of_the_planned_size_find_the_difference_about_as_often_as_promised(
    before: float, after: float
) -> None:
    factor = math.sqrt(cases_needed(_AGENTDOJO, before, after) / sum(suite.cases for suite in _AGENTDOJO))
    shape = tuple((round(suite.users * factor), round(suite.injections * factor)) for suite in _AGENTDOJO)
    own = (OWN, OWN)
    setting = PairedSetting((before,) * 4, (after,) * 4, USER, INJECTION, own, own, PAIR, shape)
    found = judged(setting, 120, draws=199, intervals=False).rejected
    assert 0.7 < found < 0.97


def test_repeating_helps_as_far_as_chance_is_what_hides_the_difference() -> None:
    assert epochs_needed(_AGENTDOJO, 0.3, 0.2) == 1
    assert 1 < epochs_needed(_AGENTDOJO, 0.1, 0.05) < 10
    assert math.isnan(epochs_needed(_AGENTDOJO, 0.5, 0.48))


def test_smaller_differences_and_rates_near_a_half_need_more() -> None:
    by_difference = [cases_needed(_AGENTDOJO, 0.3, 0.3 - points) for points in (0.02, 0.05, 0.1, 0.2)]
    by_rate = [cases_needed(_AGENTDOJO, rate, rate - 0.05) for rate in (0.5, 0.3, 0.1)]
    assert by_difference == sorted(by_difference, reverse=True)
    assert by_rate == sorted(by_rate, reverse=True)


def test_more_epochs_planned_need_fewer_tasks_but_more_cases() -> None:
    often = tuple(PlannedSuite(suite.users, suite.injections, 4) for suite in _AGENTDOJO)
    once, repeated = (cases_needed(plan, 0.3, 0.2) for plan in (_AGENTDOJO, often))
    assert once < repeated < 4 * once


def test_benign_cases_grow_by_user_tasks_alone() -> None:
    benign = tuple(PlannedSuite(suite.users, 1) for suite in _AGENTDOJO)
    needed = cases_needed(benign, 0.5, 0.45)
    assert 97 < needed < 2000
    assert cases_needed(benign, 0.5, 0.475) == pytest.approx(4 * needed, rel=0.05)


def test_suites_of_one_user_task_grow_by_suites() -> None:
    needed = cases_needed(_AGENTS, 0.3, 0.25)
    assert needed > 400
    assert cases_needed(_AGENTS, 0.3, 0.275) == pytest.approx(4 * needed, rel=0.05)


def test_a_difference_that_a_single_case_of_each_task_shows_needs_few_cases() -> None:
    assert cases_needed(_AGENTDOJO, 0.95, 0.0) < 100
