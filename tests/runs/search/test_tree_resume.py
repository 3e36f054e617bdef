"""The tree search on the runner: killed anywhere it goes on the same, and pairs held out stay held out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from searches_for_runs import attempts_in, cases_in, outcome
from small_runs import Silent, records_in

from agentsys.analysis.metrics.search_attempts import read_searches
from agentsys.records.case import ATTEMPTS
from agentsys.records.case_row import HOME
from agentsys.records.load import load_runs
from agentsys.runs.session import prepare

TEMPLATES, PAIRS, SAMPLE = 7, 3, 5
BUDGET = TEMPLATES * PAIRS
OPTIONS = [f"attack.templates={TEMPLATES}", f"attack.sample={SAMPLE}", "attack.seeds=3", "attack.best=2"]
SUITE = ["model=simulated", "benchmark.suites=[banking]", "attack=evolve_tree", "model.susceptibility=0.3"]
TASKS = ["user_tasks=[0,1,2,4]", "injection_tasks=[0,4,5]"]
PLAN = [*SUITE, *OPTIONS, *TASKS]


def run(folder: Path, overrides: list[str]) -> None:
    prepare([*overrides, "executor.workers=1", f"logdir={folder}"]).execute(Silent())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree") / "whole"
    run(folder, PLAN)
    return folder


def goes_on(number: int, whole: Path, folder: Path) -> None:
    shutil.copytree(whole, folder)
    for path in folder.rglob("*.json"):
        attempt = path.parent.name.endswith(ATTEMPTS)
        if (attempt and int(path.stem) > number) or not attempt:
            path.unlink()
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob(f"*{ATTEMPTS}/*.json")}
    assert len(kept) == number
    run(folder, PLAN)
    assert records_in(folder) == records_in(whole)
    again = {int(path.stem) for path, stamp in kept.items() if path.stat().st_mtime_ns != stamp}
    # The last one is written once more, with what the search came to.
    assert again <= {BUDGET}
    artefacts = [sorted((one / ".agentsys" / "searches").rglob("*.json")) for one in (folder, whole)]
    assert [p.read_bytes() for p in artefacts[0]] == [p.read_bytes() for p in artefacts[1]]


FAST = [1, 10, 14]


@pytest.mark.parametrize("number", FAST)
def test_a_search_killed_after_an_attempt_makes_the_same_ones(
    number: int, whole: Path, tmp_path: Path
) -> None:
    goes_on(number, whole, tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted({*range(1, BUDGET + 1)} - {*FAST}))
def test_a_search_killed_after_any_attempt_makes_the_same_ones(
    number: int, whole: Path, tmp_path: Path
) -> None:
    goes_on(number, whole, tmp_path / "killed")


def test_one_search_serves_the_suite_and_pairs_outside_its_sample_are_never_searched(whole: Path) -> None:
    ((folder, made),) = attempts_in(whole).items()
    assert Path(folder).parent.name == "banking"
    assert len(made) == BUDGET
    cases = cases_in(whole).values()
    (sampled,) = {json.dumps(record["agentsys"]["search"]["pairs"]) for record in cases}
    pairs = {tuple(pair) for pair in json.loads(sampled)}
    tried = {
        (record["agentsys"]["case"]["user_task_id"], record["agentsys"]["case"]["injection_task_id"])
        for record in made
    }
    assert tried == pairs
    assert len(pairs) == SAMPLE
    assert len({user for user, _ in pairs}) == len({injection for _, injection in pairs}) == SAMPLE
    frame = load_runs([whole])
    at_home = frame[frame.attack.str.endswith(HOME)]
    homes = set(zip(at_home.user_task_id, at_home.injection_task_id, strict=True))
    mine = {
        (record["agentsys"]["case"]["user_task_id"], record["agentsys"]["case"]["injection_task_id"])
        for record in cases
    }
    assert homes == mine & pairs


def test_the_plan_counts_the_whole_budget_and_what_is_left_of_it(whole: Path, tmp_path: Path) -> None:
    new = prepare([*PLAN, f"logdir={tmp_path}"])
    assert f"1 search for an attack's text with at most {BUDGET} queries" in str(new.searches.line)


def test_its_artefact_replays_every_template_without_an_attacker(whole: Path, tmp_path: Path) -> None:
    (artefact,) = (whole / ".agentsys" / "searches").rglob("*.json")
    stored = json.loads(artefact.read_bytes())
    assert (stored["format"], stored["mode"]) == (2, "template")
    assert [entry["variant"] for entry in stored["entries"]] == [0, 1]
    texts = {}
    for variant in (0, 1):
        folder = tmp_path / str(variant)
        # One case that the search was made on is run on other replies there, so only the others are compared.
        run(folder, [*SUITE, *TASKS, f'attack.artefact="{artefact}"', f"attack.variant={variant}"])
        assert not attempts_in(folder)
        texts[variant] = {
            (case["user_task_id"], case["injection_task_id"]): record
            for record in cases_in(folder).values()
            for case in [record["agentsys"]["case"]]
        }
    pairs = {tuple(pair) for pair in stored["entries"][0]["pairs"]}
    for record in cases_in(whole).values():
        case = record["agentsys"]["case"]
        key = case["user_task_id"], case["injection_task_id"]
        assert record["injections"] == texts[0][key]["injections"] != texts[1][key]["injections"]
        if key not in pairs:
            assert outcome(record) == outcome(texts[0][key])


def test_budgets_count_pairs_of_the_sample_and_every_query_once(whole: Path) -> None:
    found = read_searches([whole]).found
    assert len(found) == SAMPLE
    assert sum(search.queries for search in found) == sum(search.attempts for search in found) == BUDGET
    assert {search.budget for search in found} == {BUDGET}
    ((_, made),) = attempts_in(whole).items()
    first = {}
    for number, record in enumerate(made, start=1):
        case = record["agentsys"]["case"]
        if record["security"]:
            first.setdefault((case["user_task_id"], case["injection_task_id"]), number)
    assert first, "nothing succeeded, so nothing is compared"
    told = {(s.case.user_task_id, s.case.injection_task_id): s.found_query for s in found if s.found_query}
    assert told == first


def test_a_search_with_a_missing_attempt_shows_it(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "w")
    (path,) = (tmp_path / "w").rglob(f"*{ATTEMPTS}/0004.json")
    path.unlink()
    found = read_searches([tmp_path / "w"]).found
    assert all(search.state.errored for search in found if search.found_at is None)
