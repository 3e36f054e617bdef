"""Several tries of a case, and the best of several attacks."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import special
from stored_cases import row

from agentsys.analysis.metrics.best_attack import best_attack
from agentsys.analysis.metrics.several_tries import at_least_once, overall_asr, repeats
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import Side
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally, tallies
from agentsys.analysis.tables.exposure_notes import honesty_notes
from agentsys.records.case_row import CaseRow

_DRAWS = Resampler(300)
RUNS = int(os.environ.get("AGENTSYS_BEST_ATTACK_RUNS", "30"))
"""Generated runs of the coverage test."""


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


def _counted(cases: list[CaseRow]) -> dict[str, Tally]:
    return tallies(cases, ErrorRule.REPORT)


def _drawn(*shape: int, share: float, seed: int = 1) -> FloatArray:
    return (np.random.default_rng(seed).random(shape) < share).astype(float)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_at_least_once_is_the_mean_over_all_ways_to_choose_tries(k: int) -> None:
    hits = _drawn(5, 3, 4, share=0.3)
    ways = [hits[:, :, list(chosen)].any(axis=2).mean() for chosen in combinations(range(4), k)]
    found = at_least_once(_counted(_cases(hits)), Side.INJECTED, k, _DRAWS)
    assert found.value == pytest.approx(100 * np.mean(ways))
    assert found.ci_low < found.value < found.ci_high
    assert found.n == 15


def test_all_tries_mean_any_success_and_its_interval_is_that_of_the_pairs_of_tasks() -> None:
    hits = _drawn(8, 5, 3, share=0.2)
    found = at_least_once(_counted(_cases(hits)), Side.INJECTED, 3, _DRAWS)
    once = at_least_once(_counted(_cases(hits.max(axis=2, keepdims=True))), Side.INJECTED, 1, _DRAWS)
    assert found == once


def test_a_case_with_fewer_tries_or_an_error_sets_how_many_all_have() -> None:
    cases = _cases(_drawn(4, 2, 3, share=0.5))
    assert repeats(_counted(cases)) == 3
    assert repeats(_counted(cases[:-1])) == 2
    errored = [replace(case, status="error") for case in cases[-2:]]
    assert repeats(_counted([*cases[:-2], *errored])) == 1
    assert repeats({}) == 0


def _attacks(outcomes: dict[str, FloatArray]) -> list[CaseRow]:
    return [case for name, hits in outcomes.items() for case in _cases(hits[:, :, None], name)]


def test_the_interval_of_a_chosen_attack_is_longer_the_more_it_was_chosen_among() -> None:
    hits = _drawn(12, 7, 1, share=0.3)[:, :, 0]
    alone = overall_asr(_attacks({"one": hits}), _DRAWS)
    lengths = []
    for count in (2, 5):
        best = best_attack(_attacks({str(n): hits for n in range(count)}))
        assert best is not None
        found = overall_asr(best.cases, _DRAWS)
        assert found.value == alone.value
        lengths.append(found.ci_high - found.ci_low)
    assert alone.ci_high - alone.ci_low < lengths[0] < lengths[1]


@pytest.mark.slow
def test_the_interval_of_the_best_attack_holds_the_truth() -> None:
    """Six equally strong attacks: the one that did best did so by luck."""
    generator, held, shown = np.random.default_rng(8), 0, []
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    truth = 100 * float(np.average(special.expit(-1 + math.hypot(0.4, 1.0) * nodes), weights=weights))
    for _ in range(RUNS):
        shared = -1 + 0.4 * generator.standard_normal((10, 1))
        theirs = [generator.standard_normal((1, 10)) for _ in range(6)]
        outcomes = {
            str(n): (generator.random((10, 10)) < special.expit(shared + one)).astype(float)
            for n, one in enumerate(theirs)
        }
        best = best_attack(_attacks(outcomes))
        assert best is not None
        found = overall_asr(best.cases, _DRAWS)
        held += found.ci_low <= truth <= found.ci_high
        shown.append(found.value)
    assert held / RUNS >= 0.9
    assert np.mean(shown) == pytest.approx(truth, abs=5)


def test_notes_tell_of_tries_and_of_the_best_attack() -> None:
    cases = [
        *_cases(_drawn(6, 4, 2, share=0.3), "direct"),
        *_cases(_drawn(6, 4, 2, share=0.6), "ignore_previous"),
    ]
    notes = honesty_notes(cases, replicates=200)
    (first, second) = [note for note in notes if "at least once in 2 runs of a case" in note]
    assert first.startswith("agentsys / direct, at least once in 2 runs of a case: utility under attack ")
    assert ", ASR " in second
    (best,) = [note for note in notes if "the best of 2 attacks is ignore_previous; ASR" in note]
    assert best.endswith("where each injection task counts with the attack that is best on all others.")
