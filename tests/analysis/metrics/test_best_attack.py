"""The best of several attacks, several attacks as one, several tries."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from asb_cases import AGENTS, TOOLS, attacked, benign, control, grid
from scipy import special
from stored_cases import row, row_grid

from agentsys.analysis.metrics.attack_success import (
    compute_pass_at_k,
    count_least_repeats,
    find_best_attack,
    pool_attacks,
)
from agentsys.analysis.metrics.case_measures import measure_facts
from agentsys.analysis.metrics.rates import ScoredCells, make_number, measure
from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    FloatArray,
    Resampler,
    Side,
    Tally,
    tally_suites,
)
from agentsys.analysis.statistics.rate_estimates import estimate_mean_rate
from agentsys.analysis.tables.result_notes import write_honesty_notes
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow

Hits = dict[str, set[tuple[int, int]]]
"""Attack -> pairs of user and injection task on which it succeeds."""


def rows(hits: Hits, users: int = 4, goals: int = 3) -> list[CaseRow]:
    return [
        case
        for attack, broken in hits.items()
        for case in row_grid(users, goals, lambda *pair, broken=broken: pair in broken, attack=attack)  # type: ignore[misc]
    ]


def best_of(cases: Sequence[CaseRow]) -> tuple[str, float] | None:
    found = find_best_attack(cases, Resampler(20))
    return found and (found.name, found.asr.value)


def all_of(goal: int) -> set[tuple[int, int]]:
    return {(user, goal) for user in range(4)}


def test_the_winner_is_named_and_each_goal_counts_with_the_best_on_the_others() -> None:
    # On goal 0 the others choose b, which breaks nothing there; on goals 1 and 2 a and b are equal on the
    # others, and the first by name is taken, which breaks neither.
    assert best_of(rows({"a": all_of(0), "b": all_of(1) | all_of(2), "c": set()})) == ("b", 0.0)


def test_no_goal_is_counted_with_an_attack_that_was_chosen_on_it() -> None:
    # Each attack breaks one goal and nothing else: the maximum is all chance, and on other goals it is 0.
    assert best_of(rows({name: all_of(goal) for goal, name in enumerate("abc")})) == ("a", 0.0)


def test_a_truly_better_attack_keeps_its_rate() -> None:
    hits = {"good": all_of(0) | all_of(1) | all_of(2), "bad": set()}
    assert best_of(rows(hits)) == ("good", 100.0)


def test_among_equal_attacks_the_maximum_is_too_high_and_the_number_shown_is_not() -> None:
    draw, maxima, shown = random.Random(7), [], []
    for _ in range(40):
        hits = {
            f"attack {n}": {(u, g) for u in range(4) for g in range(10) if draw.random() < 0.3}
            for n in range(6)
        }
        found = best_of(rows(hits, goals=10))
        assert found is not None
        maxima.append(max(100 * len(broken) / 40 for broken in hits.values()))
        shown.append(found[1])
    assert mean(maxima) > 36
    assert mean(shown) == pytest.approx(30, abs=3)


def test_with_one_injection_task_or_one_attack_nothing_is_chosen() -> None:
    assert best_of(rows({"a": all_of(0), "b": set()}, goals=1)) is None
    assert best_of(rows({"a": all_of(0)})) is None


def test_only_cases_that_all_attacks_have_are_counted() -> None:
    cases = rows({"a": {(3, 0), (3, 1), (3, 2)}}) + rows({"b": {(0, 0), (0, 1)}}, users=2)
    assert best_of(cases) == ("b", pytest.approx(100 / 3))


def test_an_error_is_no_success_and_no_failure() -> None:
    cases = rows({"a": {(0, 0), (0, 1)}, "b": set()}, users=2, goals=2)
    broken = [replace(c, status="error") if c.user_task_id == "user_task_1" else c for c in cases]
    assert best_of(broken) == ("a", 100.0)
    assert best_of([replace(case, status="error") for case in cases]) is None


def test_several_attacks_as_one_tell_how_often_one_of_them_succeeds() -> None:
    variants = {f"cached-x+variant={n}": {(n, 0), (0, 0)} for n in range(4)}
    joined = pool_attacks(rows(variants), "cached-x+variant=*")
    (note,) = [
        note for note in write_honesty_notes(ScoredCells(joined), ()) if "at least once in 4 runs" in note
    ]
    assert "ASR 33.33 " in note  # 4 of 12 pairs of tasks


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
    return tally_suites(cases, ErrorRule.REPORT)


def _drawn(*shape: int, share: float, seed: int = 1) -> FloatArray:
    return (np.random.default_rng(seed).random(shape) < share).astype(float)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_at_least_once_is_the_mean_over_all_ways_to_choose_tries(k: int) -> None:
    hits = _drawn(5, 3, 4, share=0.3)
    ways = [hits[:, :, list(chosen)].any(axis=2).mean() for chosen in combinations(range(4), k)]
    found = compute_pass_at_k(_counted(_cases(hits)), Side.INJECTED, k, _DRAWS)
    assert found.value == pytest.approx(100 * np.mean(ways))
    assert found.ci_low < found.value < found.ci_high
    assert found.n == 15


def test_all_tries_mean_any_success_and_its_interval_is_that_of_the_pairs_of_tasks() -> None:
    hits = _drawn(8, 5, 3, share=0.2)
    found = compute_pass_at_k(_counted(_cases(hits)), Side.INJECTED, 3, _DRAWS)
    once = compute_pass_at_k(_counted(_cases(hits.max(axis=2, keepdims=True))), Side.INJECTED, 1, _DRAWS)
    assert found == once


def test_a_case_with_fewer_tries_or_an_error_sets_how_many_all_have() -> None:
    cases = _cases(_drawn(4, 2, 3, share=0.5))
    assert count_least_repeats(_counted(cases)) == 3
    assert count_least_repeats(_counted(cases[:-1])) == 2
    errored = [replace(case, status="error") for case in cases[-2:]]
    assert count_least_repeats(_counted([*cases[:-2], *errored])) == 1
    assert count_least_repeats({}) == 0


def _attacks(outcomes: dict[str, FloatArray]) -> list[CaseRow]:
    return [case for name, hits in outcomes.items() for case in _cases(hits[:, :, None], name)]


def test_the_interval_of_a_chosen_attack_is_longer_the_more_it_was_chosen_among() -> None:
    hits = _drawn(12, 7, 1, share=0.3)[:, :, 0]
    alone = make_number(estimate_mean_rate(_counted(_attacks({"one": hits})).values(), Side.INJECTED, _DRAWS))
    lengths = []
    for count in (2, 5):
        best = find_best_attack(_attacks({str(n): hits for n in range(count)}), _DRAWS)
        assert best is not None
        assert best.asr.value == alone.value
        lengths.append(best.asr.ci_high - best.asr.ci_low)
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
        best = find_best_attack(_attacks(outcomes), _DRAWS)
        assert best is not None
        held += best.asr.ci_low <= truth <= best.asr.ci_high
        shown.append(best.asr.value)
    assert held / RUNS >= 0.9
    assert np.mean(shown) == pytest.approx(truth, abs=5)


def test_notes_tell_of_tries_and_of_the_best_attack() -> None:
    cases = [
        *_cases(_drawn(6, 4, 2, share=0.3), "direct"),
        *_cases(_drawn(6, 4, 2, share=0.6), "ignore_previous"),
    ]
    notes = list(write_honesty_notes(ScoredCells(cases), ()))
    (first, second) = [note for note in notes if "at least once in 2 runs of a case" in note]
    assert first.startswith("agentsys / direct, at least once in 2 runs of a case: utility under attack ")
    assert ", ASR " in second
    (best,) = [note for note in notes if "the best of 2 attacks is ignore_previous; ASR" in note]
    assert best.endswith("where each injection task counts with the attack that is best on all others.")


ALL = dict.fromkeys(AGENTS, TOOLS)


def controls() -> list[CaseRow]:
    return [control(agent, tool) for agent in AGENTS for tool in range(TOOLS)]


def two_types() -> list[CaseRow]:
    """One attack that always succeeds and one that does for half of the agents."""
    half = dict.fromkeys("abcde", TOOLS)
    return [*grid(ALL, attack="opi_naive"), *grid(half, attack="opi_combined_attack")]


def asr_pooled_attacks(cases: tuple[CaseRow, ...]) -> dict[str, tuple[float, int]]:
    return {
        row.attack: (row.value, row.n)
        for row in measure(cases)
        if (row.metric, row.suite) == ("targeted_asr", "overall")
    }


def test_the_rate_is_the_mean_of_the_attacks_rates_over_all_their_cases() -> None:
    found = pool_attacks([*two_types(), *controls(), benign("a")], "opi_*")
    assert asr_pooled_attacks(found) == {"opi_* (2 attacks)": (75.0, 160), "opi_empty": (0.0, 80)}
    assert sum(case.attack == "none" for case in found) == 1


def test_causes_are_averaged_too_and_a_control_is_not_paired_with_some_of_the_cases() -> None:
    rows = measure_facts(ScoredCells(pool_attacks([*two_types(), *controls()], "opi_*")))
    joined = {row.metric: row for row in rows if row.attack.endswith("attacks)") and row.suite == "overall"}
    assert (joined["asr_injection_caused"].value, joined["asr_injection_caused"].n) == (75.0, 160)
    assert "asr_less_control" not in joined


def test_only_cases_that_all_the_attacks_have_are_averaged() -> None:
    half = [case for case in grid({}, attack="opi_combined_attack") if case.suite in "abcde"]
    assert asr_pooled_attacks(pool_attacks([*grid(ALL, attack="opi_naive"), *half], "opi_*")) == {
        "opi_* (2 attacks)": (50.0, 80)
    }


def test_a_defense_with_a_single_matching_attack_keeps_it() -> None:
    found = pool_attacks([*two_types(), attacked("a", 0, defense="drift", attack="opi_naive")], "opi_*")
    assert {case.attack for case in found if case.defense == "drift"} == {"opi_naive"}


@pytest.mark.parametrize("pattern", ["pair*", "opi_naive", "opi_empty"])
def test_where_no_two_attacks_match_it_says_which_there_are(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"two attacks or more.* opi_combined_attack, opi_naive"):
        pool_attacks([*two_types(), *controls()], pattern)
