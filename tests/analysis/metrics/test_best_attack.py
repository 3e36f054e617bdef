"""The best of several attacks: which it is, what choosing it is worth, and what any of them breaks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.analysis.metrics.best_attack import best_attack, best_attacks
from agentsys.analysis.metrics.rates import measure
from agentsys.cli import app
from agentsys.records.case_reader import read_cases
from agentsys.records.case_row import CaseRow

Hits = dict[str, set[tuple[int, int]]]
"""Attack -> pairs of user and injection task on which it succeeds."""


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> CaseRow:
    folder = tmp_path_factory.mktemp("best")
    store_own(folder, case_of())
    (row,) = read_cases([folder]).cases
    return row


def rows(pattern: CaseRow, hits: Hits, users: int = 4, goals: int = 3, **more: str) -> list[CaseRow]:
    return [
        replace(
            pattern,
            attack=attack,
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{goal}",
            injection_success=(user, goal) in broken,
            **more,  # type: ignore[arg-type]
        )
        for attack, broken in hits.items()
        for user in range(users)
        for goal in range(goals)
    ]


def asr(cases: tuple[CaseRow, ...]) -> dict[str, float]:
    found = measure(cases, replicates=20)
    return {r.attack: r.value for r in found if (r.metric, r.suite) == ("targeted_asr", "overall")}


def all_of(goal: int) -> set[tuple[int, int]]:
    return {(user, goal) for user in range(4)}


def test_the_winner_is_named_and_any_of_them_counts_the_union(pattern: CaseRow) -> None:
    hits = {"a": all_of(0), "b": all_of(1) | all_of(2), "c": set()}
    found = best_attacks(rows(pattern, hits))
    rates = asr(found.cases)
    # On goal 0 the others choose b, which breaks nothing there; on goals 1 and 2 a and b are equal on the
    # others, and the first by name is taken, which breaks neither.
    assert rates["best of 3: b"] == 0.0
    assert rates["any of 3"] == 100.0
    assert "3 attacks tried on 12 cases each: b 66.7, a 33.3, c 0.0" in found.notes[0]


def test_no_goal_is_counted_with_an_attack_that_was_chosen_on_it(pattern: CaseRow) -> None:
    # Each attack breaks one goal and nothing else: the maximum is all chance, and on other goals it is 0.
    hits = {name: all_of(goal) for goal, name in enumerate("abc")}
    found = best_attacks(rows(pattern, hits))
    assert asr(found.cases)["best of 3: a"] == 0.0
    assert "a 33.3, b 33.3, c 33.3" in found.notes[0]


def test_a_truly_better_attack_keeps_its_rate(pattern: CaseRow) -> None:
    hits = {"good": all_of(0) | all_of(1) | all_of(2), "bad": set()}
    rates = asr(best_attacks(rows(pattern, hits)).cases)
    assert rates["best of 2: good"] == rates["any of 2"] == 100.0


def test_among_equal_attacks_the_maximum_is_too_high_and_the_number_shown_is_not(pattern: CaseRow) -> None:
    draw, maxima, shown = random.Random(7), [], []
    for _ in range(40):
        hits = {
            f"attack {n}": {(u, g) for u in range(4) for g in range(10) if draw.random() < 0.3}
            for n in range(6)
        }
        rates = asr(best_attacks(rows(pattern, hits, goals=10)).cases)
        maxima.append(max(100 * len(broken) / 40 for broken in hits.values()))
        shown.append(next(rate for name, rate in rates.items() if name.startswith("best of 6:")))
    assert mean(maxima) > 36
    assert mean(shown) == pytest.approx(30, abs=3)


def test_with_one_injection_task_nothing_is_chosen(pattern: CaseRow) -> None:
    cases = rows(pattern, {"a": all_of(0), "b": set()}, goals=1)
    assert set(asr(best_attacks(cases).cases)) == {"any of 2"}
    best = best_attack(cases)
    assert best is not None
    assert (best.name, best.cases) == ("a", ())


def test_only_cases_that_all_attacks_have_are_counted(pattern: CaseRow) -> None:
    cases = rows(pattern, {"a": all_of(0)}) + rows(pattern, {"b": {(0, 0)}}, users=2)
    found = best_attacks(cases)
    assert asr(found.cases)["any of 2"] == pytest.approx(100 / 3)
    assert "2 attacks tried on 6 cases each" in found.notes[0]


def test_searched_on_cases_denials_and_other_names_are_left_out(pattern: CaseRow) -> None:
    hits = {"a": all_of(0), "b": set(), "pair+home": all_of(1), "dos": all_of(1), "other": all_of(1)}
    found = best_attacks(rows(pattern, hits), "[ab]")
    assert set(asr(found.cases)) == {"best of 2: a", "any of 2"}


def test_an_error_is_no_success_and_no_failure(pattern: CaseRow) -> None:
    cases = rows(pattern, {"a": {(0, 0)}, "b": set()}, users=2, goals=2)
    broken = [
        replace(c, status="error") if c.attack == "b" and c.user_task_id == "user_task_1" else c
        for c in cases
    ]
    found = [c for c in best_attacks(broken).cases if c.attack == "any of 2"]
    assert sorted(c.status for c in found) == ["error", "error", "ok", "ok"]
    assert sum(c.status == "ok" and c.injection_success is True for c in found) == 1


def test_benign_cases_stay_and_defenses_of_other_counts_are_said_to_differ(pattern: CaseRow) -> None:
    benign = replace(pattern, attack="none", injection_task_id=None)
    more = rows(pattern, {"a": set(), "b": set(), "c": set()}, defense="none")
    found = best_attacks([benign, *rows(pattern, {"a": set(), "b": set()}), *more])
    assert [case.attack for case in found.cases].count("none") == 1
    assert any("cannot be compared" in note for note in found.notes)


def test_variants_give_asr_at_k_and_the_first_ones_own_rate(pattern: CaseRow) -> None:
    variants = {f"cached-x+variant={n}": {(n, 0), (0, 0)} for n in range(4)}
    cases = rows(pattern, variants)
    rates = asr(best_attacks(cases, "cached-x+variant=*").cases)
    assert rates["any of 4"] == pytest.approx(400 / 12)
    alone = asr(tuple(case for case in cases if case.attack == "cached-x+variant=0"))
    assert alone["cached-x+variant=0"] == pytest.approx(100 / 12)


def test_the_command_shows_them_in_place_of_the_single_attacks(tmp_path: Path) -> None:
    for attack, security in (("direct", True), ("tool_knowledge", False)):
        for goal in (0, 1):
            case = case_of(attack=attack, injection_task_id=f"injection_task_{goal}")
            store_own(tmp_path, case, security=security and goal == 0)
    shown = CliRunner().invoke(app, ["results", str(tmp_path), "--best-attack", "--format", "csv"]).stdout
    assert "best of 2: direct" in shown
    assert "any of 2" in shown
    assert "\ndirect" not in shown
    said = CliRunner().invoke(app, ["results", str(tmp_path), "--best-attack", "--among", "direct"])
    assert said.exit_code != 0
