"""Generated pairs of defenses shaped like AgentDojo, and how often the paired test and its interval err.

Logit of an outcome: what the suite, the user task, the injection task and their pair bring to both defenses,
and what tasks of both kinds bring to one defense alone. Rates, not logits, are what a setting fixes. For
docs/statistics.md and the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from paired_grids import tally_of
from scipy import optimize, special

from agentsys.analysis.statistics.difference_test import LEVEL, compute_difference_interval, compute_p_value
from agentsys.analysis.statistics.differences import (
    Difference,
    PairedGrid,
    SignDraws,
    Signs,
    make_mean_difference,
)
from agentsys.analysis.statistics.outcome_grid import FloatArray, Side

V1 = ((16, 9), (21, 5), (20, 7), (40, 6))
"""User tasks and injection tasks of banking, slack, travel and workspace before v1.2."""
V1_2 = ((16, 9), (21, 5), (20, 7), (40, 14))

UNDEFENDED = (0.34, 0.57, 0.14, 0.18)
"""About the ASR of gpt-4o-mini per suite."""
IN_SLACK = (0.04, 0.24, 0.01, 0.03)
"""About that of a careful model: most of it in one suite."""
NONE = (0.0, 0.0)


def everywhere(rate: float, suites: int = 4) -> tuple[float, ...]:
    """The same rate in each suite."""
    return (rate,) * suites


@dataclass(frozen=True)
class PairedSetting:
    """How the outcomes of two defenses come about; standard deviations on the logit scale."""

    before: tuple[float, ...]
    """The baseline's rate per suite, over all tasks that could have been drawn."""
    after: tuple[float, ...]
    """The defense's; 0 is a defense that stops everything."""
    user: float = 1.0
    """Of user tasks, under both."""
    injection: float = 1.0
    """Of injection tasks, under both."""
    own_before: tuple[float, float] = NONE
    """Of user tasks and injection tasks under the baseline alone."""
    own_after: tuple[float, float] = NONE
    pair: float = 0.5
    """Of single (user task, injection task) pairs, under both."""
    shape: tuple[tuple[int, int], ...] = V1_2
    """(user tasks, injection tasks) per suite."""

    @property
    def truth(self) -> float:
        """The overall difference."""
        return float(np.mean(self.after) - np.mean(self.before))

    @cached_property
    def logits(self) -> tuple[tuple[float, float], ...]:
        """Logits of the typical case per suite: under the baseline, and under the defense."""
        shared = self.user**2 + self.injection**2 + self.pair**2
        spreads = [math.sqrt(shared + own[0] ** 2 + own[1] ** 2) for own in (self.own_before, self.own_after)]
        return tuple(
            (_centre(before, spreads[0]), _centre(after, spreads[1]))
            for before, after in zip(self.before, self.after, strict=True)
        )


def equal(rates: tuple[float, ...], own: tuple[float, float] = NONE, **rest: Any) -> PairedSetting:
    """Two defenses with the same rates, and own effects of the same size."""
    return replace(PairedSetting(rates, rates, own_before=own, own_after=own), **rest)


class _KeptSigns(SignDraws):
    """Signs, drawn once: generated pairs all have the same tasks."""

    @lru_cache(maxsize=200)  # noqa: B019 - one per setting, and small
    def draw_signs(self, suite: str, way: str, tasks: tuple[str, ...]) -> Signs:
        return super().draw_signs(suite, way, tasks)


class Judged(NamedTuple):
    """Shares of the generated pairs."""

    rejected: float
    """With p below 0.05."""
    covered: float
    """Whose interval holds the true difference; nan where intervals were not asked for."""
    length: float
    """Mean length of the interval, in percentage points."""


def judged(setting: PairedSetting, runs: int, *, draws: int = 999, seed: int = 0, intervals: bool) -> Judged:
    """How often the test finds a difference and the interval holds it.

    Args:
        setting: How outcomes come about.
        runs: How many pairs are generated.
        draws: Sign flips of the test.
        seed: Of the generated outcomes; the flips have their own.
        intervals: Whether to look at intervals too, which takes a few times as long.
    """
    rejected = covered = length = 0.0
    for difference in generated(setting, runs, draws=draws, seed=seed):
        rejected += compute_p_value(difference) < LEVEL
        if intervals:
            found = compute_difference_interval(difference)
            covered += found.low <= setting.truth <= found.high
            length += 100 * (found.high - found.low)
    if not intervals:
        covered = length = math.nan
    return Judged(rejected / runs, covered / runs, length / runs)


def generated(setting: PairedSetting, runs: int, *, draws: int = 999, seed: int = 0) -> Iterator[Difference]:
    """Overall differences of generated pairs."""
    generator, signs = np.random.default_rng(seed), _KeptSigns(draws)
    for _ in range(runs):
        yield make_mean_difference(list(_grids(setting, generator, signs)))


def _grids(setting: PairedSetting, generator: np.random.Generator, signs: SignDraws) -> Iterator[PairedGrid]:
    for number, (shape, logits) in enumerate(zip(setting.shape, setting.logits, strict=True)):
        shared = _effects(generator, shape, (setting.user, setting.injection))
        shared += setting.pair * generator.standard_normal(shape)
        before, after = (
            (
                generator.random(shape) < special.expit(logit + shared + _effects(generator, shape, own))
            ).astype(np.float64)
            for logit, own in zip(logits, (setting.own_before, setting.own_after), strict=True)
        )
        first, second = (tally_of(hits, suite=f"suite {number:02d}") for hits in (before, after))
        yield PairedGrid(first, second, Side.SOLVED, signs)


def _effects(
    generator: np.random.Generator, shape: tuple[int, int], spreads: tuple[float, float]
) -> FloatArray:
    users = spreads[0] * generator.standard_normal((shape[0], 1))
    effects: FloatArray = users + spreads[1] * generator.standard_normal((1, shape[1]))
    return effects


@lru_cache
def _centre(rate: float, spread: float) -> float:
    """The logit around which normal effects of this spread give the rate."""
    if rate <= 0:
        return -math.inf
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)

    def missed(centre: float) -> float:
        return float(np.average(special.expit(centre + spread * nodes), weights=weights)) - rate

    return float(optimize.brentq(missed, -40.0, 40.0))


_STRONG: dict[str, Any] = {"user": 2.5, "injection": 1.8}
_BROKEN: dict[str, Any] = {"user": 2.0, "injection": 2.5}
_FOUR = everywhere(0.04)

EQUAL: dict[str, PairedSetting] = {
    "undefended": equal(UNDEFENDED),
    "undefended, own 0.5, 0.5": equal(UNDEFENDED, (0.5, 0.5)),
    "undefended, own 1, 1": equal(UNDEFENDED, (1.0, 1.0)),
    "undefended, own 0, 1": equal(UNDEFENDED, (0.0, 1.0)),
    "50% (utility), sd 2, 0.3, own 1.5, 0.2": equal(everywhere(0.5), (1.5, 0.2), user=2.0, injection=0.3),
    "undefended, before v1.2, own 0.7, 1": equal(UNDEFENDED, (0.7, 1.0), shape=V1),
    "undefended, sd 2.5, 1.8, own 0.7, 0.7": equal(UNDEFENDED, (0.7, 0.7), **_STRONG),
    "undefended, sd 2.5, 1.8, own 1.5, 1.5": equal(UNDEFENDED, (1.5, 1.5), **_STRONG),
    "10%, own 0.5, 0.5": equal(everywhere(0.1), (0.5, 0.5)),
    "10%, own 1, 1": equal(everywhere(0.1), (1.0, 1.0)),
    "5%": equal(everywhere(0.05)),
    "5%, own 1, 1": equal(everywhere(0.05), (1.0, 1.0)),
    "2%, sd 1, 1.5, own 1, 1": equal(everywhere(0.02), (1.0, 1.0), injection=1.5),
    "in slack, sd 1, 1.5, own 0.5, 1": equal(IN_SLACK, (0.5, 1.0), injection=1.5),
    "0.7%, own 0.5, 0.5": equal(everywhere(0.007), (0.5, 0.5)),
    "4%, two suites, sd 4, 1, own 1, 0.3": equal(everywhere(0.04, 2), (1.0, 0.3), user=4.0, shape=V1_2[:2]),
    "in slack, sd 2, 2.5, own 1, 1": equal(IN_SLACK, (1.0, 1.0), **_BROKEN),
    "4%, before v1.2, sd 2, 2, own 1, 1": equal(_FOUR, (1.0, 1.0), user=2.0, injection=2.0, shape=V1),
    "40%, nothing in common, own 2, 2": equal(everywhere(0.4), (2.0, 2.0), user=0.0, injection=0.0, pair=0.0),
    "better in two suites, worse in two": PairedSetting((0.3, 0.3, 0.2, 0.2), (0.2, 0.2, 0.3, 0.3)),
}
"""Two defenses that are equally good, with effects as published runs show them."""

SKEWED: dict[str, PairedSetting] = {
    "undefended, own 2, 2 in one": PairedSetting(UNDEFENDED, UNDEFENDED, own_after=(2.0, 2.0)),
    "8%, own 2.5, 0 in one": PairedSetting(everywhere(0.08), everywhere(0.08), own_after=(2.5, 0.0)),
    "3%, own 2, 2 in one": PairedSetting(everywhere(0.03), everywhere(0.03), own_after=(2.0, 2.0)),
    "in slack, sd 2, 2, own 0, 3 in one": PairedSetting(
        IN_SLACK, IN_SLACK, user=2.0, injection=2.0, own_after=(0.0, 3.0)
    ),
    "8%, own 0, 2.5 in one": PairedSetting(everywhere(0.08), everywhere(0.08), own_after=(0.0, 2.5)),
    "3%, own 0, 3 in one": PairedSetting(everywhere(0.03), everywhere(0.03), own_after=(0.0, 3.0)),
}
"""Equally good, but one defense alone is broken by few injection tasks, or under few user tasks."""


DIFFERENT: dict[str, PairedSetting] = {
    "5% to 0": PairedSetting(everywhere(0.05), everywhere(0.0)),
    "in slack to 0, sd 1, 1.5": PairedSetting(IN_SLACK, everywhere(0.0), injection=1.5),
    "in slack to 0, sd 2, 2.5": PairedSetting(IN_SLACK, everywhere(0.0), **_BROKEN),
    "2% to 0": PairedSetting(everywhere(0.02), everywhere(0.0)),
    "1% to 0": PairedSetting(everywhere(0.01), everywhere(0.0)),
    "8% to 3%, own 0.5, 0.5": PairedSetting(
        everywhere(0.08), everywhere(0.03), own_before=(0.5, 0.5), own_after=(0.5, 0.5)
    ),
    "undefended less 8, sd 2.5, 1.8, own 0.7, 0.7": PairedSetting(
        UNDEFENDED, tuple(rate - 0.08 for rate in UNDEFENDED), 2.5, 1.8, (0.7, 0.7), (0.7, 0.7)
    ),
    "50 to 58% (utility), sd 2, 0.3, own 1.5, 0.2": PairedSetting(
        everywhere(0.5), everywhere(0.58), 2.0, 0.3, (1.5, 0.2), (1.5, 0.2)
    ),
    "slack alone, 57 to 30%": PairedSetting(
        UNDEFENDED, (0.34, 0.3, 0.14, 0.18), own_before=(0.5, 0.5), own_after=(0.5, 0.5)
    ),
}
"""Defenses that differ."""
