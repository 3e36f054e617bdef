"""Searches that are killed, fail or are stopped go on where they were; refused candidates run nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deadly_for_searches import calls
from searches_for_runs import TWO_TASKS, attempts_in, cases_in, counting, own_configs
from small_runs import Silent, records_in

from agentsys.errors import ConfigError
from agentsys.records.case import ATTEMPTS
from agentsys.runs.run_session import prepare_session
from agentsys.runs.search_plan import describe_searches


def test_refused_candidates_are_stored_cost_an_attempt_and_run_nothing(tmp_path: Path) -> None:
    confs = own_configs(tmp_path, "off_topic: true\n")
    overrides = ["attack=counted", "defense=counted", "executor.workers=1", *TWO_TASKS[:2]]
    tasks = ["user_tasks=[0]", "injection_tasks=[0]", "model.susceptibility=0", f"logdir={tmp_path / 'r'}"]
    prepare_session([*overrides, *tasks], config_dirs=confs).execute(Silent())
    (made,) = attempts_in(tmp_path / "r").values()
    refused = [record["agentsys"]["attempt"]["refused"] is not None for record in made]
    # The start text, then 15 proposals of which every second one, the first included, is off topic.
    assert (len(made), sum(refused)) == (16, 8)
    assert (calls(tmp_path, "attacker"), calls(tmp_path, "query")) == (15, 8)
    for record, was in zip(made, refused, strict=True):
        assert ("agent" in record["agentsys"]["usage"]) is not was
        assert bool(record["injections"]) is not was
    (record,) = cases_in(tmp_path / "r").values()
    assert record["agentsys"]["search"]["refused"] == 8


def _killed(tmp_path: Path, order: str, *overrides: str) -> None:
    """Run in a forked child that dies at the call the order names."""
    (tmp_path / "kill").write_text(order)
    child = os.fork()
    if child == 0:
        try:
            counting(tmp_path, *overrides).execute(Silent())
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it ended before it was killed"
    (tmp_path / "kill").unlink()


PLAN = ("user_tasks=[0,1]", "injection_tasks=[0,5]", "model.susceptibility=0")


@pytest.mark.slow
def test_a_search_killed_again_and_again_repeats_no_attempt_and_no_attacker_call(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    counting(tmp_path, *PLAN, folder="whole").execute(Silent())
    asked, ran = calls(tmp_path, "attacker"), calls(tmp_path, "query")
    assert (asked, ran) == (60, 64)
    (tmp_path / "attacker").unlink()
    (tmp_path / "query").unlink()
    # The 4th query dies after its candidate was proposed; the 9th proposal dies before it is made.
    _killed(tmp_path, "query 4", *PLAN)
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*000[123].json")}
    assert len(stamps) == 3
    _killed(tmp_path, "attacker 9", *PLAN)
    _killed(tmp_path, "query 20", *PLAN)
    counting(tmp_path, *PLAN).execute(Silent())
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps, "a finished attempt was made again"
    # Each kill costs the one call it fell into, and no other call is made twice.
    assert (calls(tmp_path, "attacker"), calls(tmp_path, "query")) == (asked + 1, ran + 2)
    assert records_in(tmp_path / "runs") == records_in(whole)


@pytest.mark.parametrize(("order", "asked"), [("query 3", 15), ("attacker 2", 16)])
def test_an_errored_attempt_ends_the_search_and_is_the_very_one_made_next(
    tmp_path: Path, order: str, asked: int
) -> None:
    one = ("user_tasks=[0]", "injection_tasks=[0]", "model.susceptibility=0")
    (tmp_path / "fail").write_text(order)
    ended = counting(tmp_path, *one).execute(Silent())
    assert (ended.finished, ended.errors, ended.fatal) == (1, 1, None)
    kinds = {r["agentsys"]["error_kind"] for r in cases_in(tmp_path / "runs").values()}
    assert kinds == {"server_error"}
    (made,) = attempts_in(tmp_path / "runs").values()
    assert [record["agentsys"]["status"] for record in made] == ["ok", "ok", "error"]
    again = counting(tmp_path, *one).execute(Silent())
    assert (again.finished, again.errors) == (1, 0)
    (made,) = attempts_in(tmp_path / "runs").values()
    assert [record["agentsys"]["status"] for record in made] == ["ok"] * 16
    # The first proposal was asked for with the start text.
    asks = [record["agentsys"]["usage"].get("attacker", {}).get("calls") for record in made]
    assert asks == [1, None, *[1] * 14]
    assert calls(tmp_path, "attacker") == asked


@pytest.mark.parametrize("order", ["attacker 2", "query 3"])
def test_what_a_provider_refuses_for_good_costs_an_attempt_and_the_search_goes_on(
    tmp_path: Path, order: str
) -> None:
    (tmp_path / "refuse").write_text(order)
    one = ("user_tasks=[0]", "injection_tasks=[0]", "model.susceptibility=0")
    assert counting(tmp_path, *one).execute(Silent()).errors == 0
    (made,) = attempts_in(tmp_path / "runs").values()
    facts = [record["agentsys"]["attempt"] for record in made]
    assert [fact["number"] for fact in facts if fact["refused"]] == [3]
    assert "content_refused" in facts[2]["refused"]
    assert len(facts) == 16


def test_ctrl_c_stops_a_search_between_attempts_and_stores_no_case(tmp_path: Path) -> None:
    class Impatient(Silent):
        def on_attempt_stored(self, record: Any) -> None:
            super().on_attempt_stored(record)
            if len(self.attempts) == 1:
                raise KeyboardInterrupt

    ended = counting(tmp_path, *PLAN, "+attack.depth=900").execute(Impatient())
    assert ended.interrupted
    assert ended.finished == 0
    assert not cases_in(tmp_path / "runs")
    assert attempts_in(tmp_path / "runs")


def test_attempts_made_under_other_settings_are_neither_taken_over_nor_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "fail").write_text("query 3")
    one = ("user_tasks=[0]", "injection_tasks=[0]", "model.susceptibility=0")
    counting(tmp_path, *one).execute(Silent())
    for path in (tmp_path / "runs").rglob("*.json"):
        if ATTEMPTS not in str(path) and ".agentsys" not in path.parts:
            path.unlink()
    with pytest.raises(ConfigError, match="other settings"):
        counting(tmp_path, *one, "seed=5")
    hashes = {r["agentsys"]["config_hash"] for made in attempts_in(tmp_path / "runs").values() for r in made}
    assert len(hashes) == 1


@pytest.mark.slow
def test_a_candidate_tried_on_several_user_tasks_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    options = ("attack.mode=transfer", "+attack.search_on=3", "user_tasks=[0]", "injection_tasks=[0]")
    plan = (*options, "model.susceptibility=0")
    counting(tmp_path, *plan, folder="whole").execute(Silent())
    ran = calls(tmp_path, "query")
    assert ran == 3 * 16 + 1
    (tmp_path / "query").unlink()
    _killed(tmp_path, "query 5", *plan)
    _killed(tmp_path, "query 12", *plan)
    counting(tmp_path, *plan).execute(Silent())
    # What was asked at once with a query that was cut short is asked again: three tasks at most, at each end.
    assert ran + 2 <= calls(tmp_path, "query") <= ran + 2 * 3
    assert records_in(tmp_path / "runs") == records_in(tmp_path / "whole")


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


@pytest.mark.parametrize(
    "number",
    [n if n in (1, 16, 18) else pytest.param(n, marks=pytest.mark.slow) for n in range(1, BUDGET + 1)],
)
def test_a_search_killed_after_an_attempt_makes_the_same_ones(
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
    assert f"at most {BUDGET} queries" in describe_searches(session.plan.open_jobs.searched, session.store)


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
