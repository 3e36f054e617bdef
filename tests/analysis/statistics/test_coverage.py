"""Intervals of rates are right about as often as they say, on generated runs shaped like AgentDojo."""

from __future__ import annotations

import numpy as np
import pytest
from interval_simulation import UNDEFENDED, Setting, coverage

_SETTINGS = [
    Setting(user=0.0, injection=0.0),
    Setting(user=0.5, injection=0.5),
    Setting(user=1.0, injection=1.0),
    Setting(user=1.0, injection=1.5, pair=1.0),
    Setting(means=(-3.0,) * 4, user=0.5, injection=1.0),
    Setting(means=(1.5,) * 4, user=1.0, injection=1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", _SETTINGS, ids=str)
def test_95_percent_intervals_of_the_overall_asr_cover_between_93_and_99(setting: Setting) -> None:
    assert 0.93 <= coverage(setting, 400, seed=1).calibrated <= 0.99


def test_plain_percentile_intervals_are_too_wide_without_effects_of_tasks() -> None:
    assert coverage(Setting(user=0.0, injection=0.0), 400, seed=3).percentile > 0.99


def test_plain_percentile_intervals_are_too_narrow_where_few_injection_tasks_decide() -> None:
    assert coverage(Setting(user=1.0, injection=3.0), 400, seed=3).percentile < 0.95


def test_truth_is_the_mean_of_what_is_generated() -> None:
    setting = Setting(means=(-1.0,), user=1.0, injection=1.0, shape=((300, 300),))
    rng = np.random.default_rng(4)
    logits = -1.0 + rng.standard_normal((1500, 1)) + rng.standard_normal((1, 1500))
    assert setting.truth == pytest.approx((1 / (1 + np.exp(-logits))).mean(), abs=0.03)


def test_truth_depends_on_the_effects_through_the_sum_of_their_variances() -> None:
    together = Setting(means=(-1.0,), user=3.0, injection=0.0).truth
    assert Setting(means=(-1.0,), user=2.0, injection=2.0, pair=1.0).truth == pytest.approx(together)


@pytest.mark.slow
@pytest.mark.parametrize("means", [UNDEFENDED, (0.0,) * 4, (-3.0,) * 4, (1.5,) * 4], ids=str)
@pytest.mark.parametrize(
    ("user", "injection", "pair"),
    [
        (0, 0, 0),
        (0.5, 0.5, 0),
        (1, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
        (1, 1.5, 1),
        (2, 2, 0),
        (2.5, 1.8, 0),
        (2, 2.5, 0),
        (1, 3, 0),
    ],
)
def test_intervals_hold_over_many_runs(
    means: tuple[float, ...], user: float, injection: float, pair: float
) -> None:
    setting = Setting(means, user, injection, pair)
    assert 0.94 <= coverage(setting, 2000, replicates=500, seed=5).calibrated <= 0.99
