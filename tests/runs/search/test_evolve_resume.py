"""The archive search on the runner: killed anywhere it goes on the same; its budget holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from searches_for_runs import attempts_in, cases_in
from small_runs import Silent, records_in

from agentsys.records.case import ATTEMPTS
from agentsys.runs.run_session import prepare_session
from agentsys.runs.search_plan import describe_searches

BUDGET = 20
ONE = ["model=simulated", "benchmark.suites=[banking]", "attack=evolve", f"attack.budget={BUDGET}"]
CASE = [*ONE, "attack.mode=per_case", "user_tasks=[0]", "injection_tasks=[5]", "model.susceptibility=0"]


def run(folder: Path, overrides: list[str]) -> None:
    prepare_session([*overrides, "executor.workers=1", f"logdir={folder}"]).execute(Silent())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evolve") / "whole"
    run(folder, CASE)
    return folder


def killed_after(number: int, whole: Path, folder: Path) -> None:
    """What a run leaves that was killed once this attempt was written."""
    shutil.copytree(whole, folder)
    for path in folder.rglob("*.json"):
        later = path.parent.name.endswith(ATTEMPTS) and int(path.stem) > number
        if later or "injection_task_5" in path.stem or "searches" in path.parts:
            path.unlink()


def goes_on(number: int, whole: Path, folder: Path) -> None:
    killed_after(number, whole, folder)
    (made,) = attempts_in(folder).values()
    assert len(made) == number
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob(f"*{ATTEMPTS}/*.json")}
    run(folder, CASE)
    assert records_in(folder) == records_in(whole)
    kept = {path: path.stat().st_mtime_ns for path in stamps}
    again = {path for path in stamps if kept[path] != stamps[path]}
    # The last one is written once more, with what the search came to.
    assert {int(path.stem) for path in again} <= {BUDGET}
    artefacts = [sorted((one / ".agentsys" / "searches").rglob("*.json")) for one in (folder, whole)]
    assert [p.read_bytes() for p in artefacts[0]] == [p.read_bytes() for p in artefacts[1]]


@pytest.mark.parametrize("number", [1, 16, 18])
def test_a_search_killed_after_an_attempt_makes_the_same_ones(
    number: int, whole: Path, tmp_path: Path
) -> None:
    goes_on(number, whole, tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted({*range(1, BUDGET + 1)} - {1, 16, 18}))
def test_a_search_killed_after_any_attempt_makes_the_same_ones(
    number: int, whole: Path, tmp_path: Path
) -> None:
    goes_on(number, whole, tmp_path / "killed")


def test_the_budget_is_spent_and_kept_and_strategies_are_stored(whole: Path) -> None:
    (made,) = attempts_in(whole).values()
    assert len(made) == BUDGET
    facts = [record["agentsys"]["attempt"] for record in made]
    assert len({fact["strategy"] for fact in facts[1:15]}) == 14
    assert [fact["parent"] is None for fact in facts] == [True] * 15 + [False] * 5
    (case,) = cases_in(whole).values()
    assert case["agentsys"]["search"]["budget"] == case["agentsys"]["search"]["attempts"] == BUDGET


def test_the_plan_counts_the_whole_budget(tmp_path: Path) -> None:
    session = prepare_session([*CASE, f"logdir={tmp_path}"])
    assert f"at most {BUDGET} queries" in describe_searches(session.plan.searched, session.store)


def test_pairs_that_were_searched_on_stay_apart_and_no_other_pair_is_searched(
    run_cases: Any, tmp_path: Path
) -> None:
    plan = [*ONE, "injection_tasks=[5]", "attack.search_on=2", "attack.budget=4", "model.susceptibility=0.2"]
    records = run_cases(plan, tmp_path)
    searched = {path.split("/")[-2] for path in records if ATTEMPTS in path}
    cases = {path: record for path, record in records.items() if ATTEMPTS not in path}
    homes = {home for record in cases.values() for home in record["agentsys"]["search"]["homes"]}
    tried_on = {r["agentsys"]["case"]["user_task_id"] for path, r in records.items() if ATTEMPTS in path}
    assert tried_on == homes
    assert len(homes) == 2
    assert len(cases) == 16
    assert searched
