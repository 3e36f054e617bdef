"""Several tries of a case, and the strongest of several attacks."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import special
from stored_cases import row

from agentsys.analysis.metrics.several_tries import at_least_once, best_of, repeats, strongest
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.estimate import Estimate, Side, macro, rate, totals
from agentsys.analysis.statistics.intervals import proportion_interval
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally
from agentsys.analysis.tables.exposure_notes import honesty_notes
from agentsys.records.case_row import CaseRow

_DRAWS = Resampler(300)


def _cases(hits: FloatArray, attack: str = "important_instructions", suite: str = "banking") -> list[CaseRow]:
    """One case per cell of a (user tasks, injection tasks, epochs) array."""
    return [
        row(
            suite=suite,
            attack=attack,
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{goal}",
            epoch=epoch,
            injection_success=bool(hit),
            utility=not hit,
        )
        for (user, goal, epoch), hit in np.ndenumerate(hits)
    ]


def _drawn(*shape: int, share: float, seed: int = 1) -> FloatArray:
    return (np.random.default_rng(seed).random(shape) < share).astype(float)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_at_least_once_is_the_mean_over_all_ways_to_choose_tries(k: int) -> None:
    hits = _drawn(5, 3, 4, share=0.3)
    ways = [hits[:, :, list(chosen)].any(axis=2).mean() for chosen in combinations(range(4), k)]
    found = at_least_once(_cases(hits), Side.INJECTED, k, _DRAWS)
    assert found.value == pytest.approx(100 * np.mean(ways))
    assert found.ci_low < found.value < found.ci_high
    assert found.n == 15


def test_all_tries_mean_any_success_and_its_interval_is_that_of_the_pairs_of_tasks() -> None:
    hits = _drawn(8, 5, 3, share=0.2)
    found = at_least_once(_cases(hits), Side.INJECTED, 3, _DRAWS)
    once = at_least_once(_cases(hits.max(axis=2, keepdims=True)), Side.INJECTED, 1, _DRAWS)
    assert found == once


def test_a_case_with_fewer_tries_or_an_error_sets_how_many_all_have() -> None:
    cases = _cases(_drawn(4, 2, 3, share=0.5))
    assert repeats(cases) == 3
    assert repeats(cases[:-1]) == 2
    assert repeats([*cases[:-2], *(replace(case, status="error") for case in cases[-2:])]) == 1
    assert repeats([]) == 0


def test_the_strongest_attack_has_an_interval_longer_than_its_own() -> None:
    weak, strong, other = (_cases(_drawn(12, 7, 1, share=p, seed=3), f"a{p}") for p in (0.1, 0.3, 0.28))
    best = strongest({"weak": weak, "strong": strong, "other": other}, _DRAWS)
    assert best is not None
    alone = at_least_once(strong, Side.INJECTED, 1, _DRAWS)
    assert best.attack == "strong"
    assert best.number.value == alone.value
    assert best.number.ci_low < alone.ci_low
    assert best.number.ci_high > alone.ci_high


def test_one_attack_or_one_on_fewer_suites_is_not_chosen_from() -> None:
    cases = _cases(_drawn(6, 4, 1, share=0.3))
    assert strongest({"one": cases}, _DRAWS) is None
    wider = [*cases, *_cases(_drawn(6, 4, 1, share=0.3), suite="slack")]
    assert strongest({"one": cases, "two": wider}, _DRAWS) is None


def test_the_same_attack_twice_costs_nothing() -> None:
    """Joint replicates know that two attacks with the same outcomes are one: no second chance."""
    cases = _cases(_drawn(12, 7, 1, share=0.3))
    best = strongest({"one": cases, "two": cases}, Resampler(4000))
    assert best is not None
    alone = at_least_once(cases, Side.INJECTED, 1, Resampler(4000))
    assert best.number.ci_low == pytest.approx(alone.ci_low, abs=1.0)


def _estimate(outcomes: FloatArray) -> Estimate:
    users, goals = (tuple(f"{n:02d}" for n in range(count)) for count in outcomes.shape)
    counted = Tally("suite", users, goals, np.ones_like(outcomes), outcomes, outcomes, 0)
    return macro([rate([totals(counted, Side.INJECTED, _DRAWS)])])


def test_the_interval_of_the_chosen_one_holds_where_its_own_would_not() -> None:
    """Twelve equally strong attacks: the one that did best did so by luck."""
    generator, naive, joint = np.random.default_rng(8), 0, 0
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    truth = float(np.average(special.expit(-1 + math.hypot(0.4, 1.0) * nodes), weights=weights))
    for _ in range(120):
        shared = -1 + 0.4 * generator.standard_normal((20, 1))
        theirs = [generator.standard_normal((1, 10)) for _ in range(12)]
        rates = {
            str(n): _estimate((generator.random((20, 10)) < special.expit(shared + one)).astype(float))
            for n, one in enumerate(theirs)
        }
        best = best_of(rates)
        assert best is not None
        own = proportion_interval(rates[best.attack])
        naive += own.low <= truth <= own.high
        joint += best.number.ci_low <= 100 * truth <= best.number.ci_high
    assert naive / 120 < 0.95 < joint / 120


def test_notes_tell_of_tries_and_of_the_strongest_attack() -> None:
    cases = [
        *_cases(_drawn(6, 4, 2, share=0.3), "direct"),
        *_cases(_drawn(6, 4, 2, share=0.6), "ignore_previous"),
    ]
    notes = honesty_notes(cases, replicates=200)
    (first, second) = [note for note in notes if "at least once in 2 runs of a case" in note]
    assert first.startswith("agentsys / direct, at least once in 2 runs of a case: utility under attack ")
    assert ", ASR " in second
    (best,) = [note for note in notes if "the strongest of 2 attacks is ignore_previous; ASR" in note]
    assert best.endswith("allowing for its having been chosen.")


def test_single_runs_of_one_attack_have_no_such_note() -> None:
    notes = " ".join(honesty_notes(_cases(_drawn(6, 4, 1, share=0.3)), replicates=50))
    assert "at least once" not in notes
    assert "strongest" not in notes
