"""The paired test errs about as often as it says, finds what it should, and its intervals hold the truth.

A reduced form of the simulation whose figures stand in docs/statistics.md. Bounds are those of
the full runs, with room for the noise of few: three standard errors.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from paired_simulation import DIFFERENT, EQUAL, SKEWED, PairedSetting, generated, judged
from scipy import special

_RUNS = int(os.environ.get("AGENTSYS_CALIBRATION_RUNS", "80"))
"""Pairs per line of the slow tests; the documented figures have 1500."""
_FEW = 100
"""Pairs per line of the fast ones."""


def _noise(share: float, runs: int) -> float:
    return 3 * math.sqrt(share * (1 - share) / runs)


def test_a_defense_that_stops_everything_is_told_apart_where_few_tasks_carry_the_rate() -> None:
    setting = DIFFERENT["in slack to 0, sd 2, 2.5"]
    assert judged(setting, _FEW, draws=199, intervals=False).rejected > 0.93 - _noise(0.93, _FEW)


def test_equal_defenses_are_seldom_told_apart() -> None:
    names = ("undefended, own 1, 1", "5%, own 1, 1", "undefended, sd 2.5, 1.8, own 0.7, 0.7")
    found = [judged(EQUAL[name], _FEW, draws=199, intervals=False).rejected for name in names]
    assert np.mean(found) < 0.06 + _noise(0.06, 3 * _FEW)
    assert np.mean(found) > 0.01


def test_intervals_hold_the_difference() -> None:
    setting = DIFFERENT["in slack to 0, sd 1, 1.5"]
    assert judged(setting, _FEW, draws=199, intervals=True).covered > 0.925 - _noise(0.925, _FEW)


def test_generated_rates_are_those_of_the_setting() -> None:
    setting = PairedSetting((0.34,), (0.1,), 1.0, 1.0, (0.5, 0.5), (2.0, 0.0), shape=((1500, 1500),))
    (difference,) = generated(setting, 1, draws=1)
    assert difference.rate_before == pytest.approx(0.34, abs=0.02)
    assert difference.rate_after == pytest.approx(0.1, abs=0.02)
    assert special.expit(setting.logits[0][1]) < 0.1  # the mean of logits is not the logit of the mean


@pytest.mark.slow
def test_no_setting_of_equal_defenses_is_told_apart_more_often_than_documented() -> None:
    found = {name: judged(one, _RUNS, draws=499, intervals=False).rejected for name, one in EQUAL.items()}
    assert {name: share for name, share in found.items() if share > 0.07 + _noise(0.07, _RUNS)} == {}
    assert 0.03 - 0.01 < np.mean(list(found.values())) < 0.05 + 0.01


@pytest.mark.slow
def test_few_broken_injection_tasks_of_one_defense_are_the_worst_and_bounded() -> None:
    found = [judged(one, _RUNS, draws=499, intervals=False).rejected for one in SKEWED.values()]
    *others, last = found
    assert max(others) < 0.085 + _noise(0.085, _RUNS)
    assert last < 0.13 + _noise(0.13, _RUNS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "power"),
    [
        ("in slack to 0, sd 2, 2.5", 0.93),
        ("8% to 3%, own 0.5, 0.5", 0.88),
        ("undefended less 8, sd 2.5, 1.8, own 0.7, 0.7", 0.79),
        ("1% to 0", 0.63),
        ("slack alone, 57 to 30%", 0.42),
    ],
)
def test_differences_are_found_as_often_as_documented(name: str, power: float) -> None:
    found = judged(DIFFERENT[name], _RUNS, draws=499, intervals=True)
    assert found.rejected > power - _noise(power, _RUNS)
    assert found.covered > 0.925 - _noise(0.925, _RUNS)
