"""Searches at full width: the results are those of a search that makes one query after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import delayed_model
import pytest
from delayed_model import DELAYED, FAILING
from searches_for_runs import attempts_in
from small_runs import Silent, records_in

from agentsys.attacks.attacker_prompt import ATTACKER_ROLE
from agentsys.base.ledger import LEDGER_FILE, read_ledger
from agentsys.runs.run_session import Session, prepare_session
from agentsys.runs.run_totals import RunOutcome
from agentsys.runs.search_plan import AheadLimit

SEARCHES = {
    "pair": ["attack=pair", "injection_tasks=[1,5]"],
    "tap": ["attack=tap", "injection_tasks=[1,5]"],
    "per_case": ["attack=pair,tap", "attack.mode=per_case", "injection_tasks=[0,5]"],
    "samples": ["attack=sampler", "injection_tasks=[5]", "attack.samples=12"],
}


def planned(folder: Path, *overrides: str) -> Session:
    confs = folder.parent / "conf"
    (confs / "model").mkdir(parents=True, exist_ok=True)
    (confs / "model" / "delayed.yaml").write_text(DELAYED)
    (confs / "model" / "failing.yaml").write_text(FAILING)
    chosen = ["benchmark.suites=[banking]", "user_tasks=[0,1]", *overrides, f"logdir={folder}"]
    return prepare_session(chosen, config_dirs=[confs])


def run(folder: Path, *overrides: str) -> RunOutcome:
    return planned(folder, *overrides).execute(Silent())


def artefacts(folder: Path) -> dict[str, bytes]:
    root = folder / ".agentsys" / "searches"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.json"))}


@pytest.mark.parametrize("susceptibility", [0.15, 0.3])
@pytest.mark.parametrize("search", list(SEARCHES))
@pytest.mark.parametrize("schedule", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15))])
def test_whatever_ends_first_records_and_artefacts_are_those_of_the_serial_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str, susceptibility: float, schedule: int
) -> None:
    plan = ["model=delayed", f"model.susceptibility={susceptibility}", *SEARCHES[search]]
    serial, wide = tmp_path / "serial", tmp_path / "wide"
    run(serial, *plan, "executor.workers=1")
    monkeypatch.setattr(delayed_model, "LONGEST_S", 0.02)
    run(wide, *plan, "executor.workers=12")
    assert len(attempts_in(serial)) > 1
    assert records_in(wide) == records_in(serial)
    assert artefacts(wide) == artefacts(serial)


def test_attempts_ahead_of_a_failure_are_in_ledger_and_budget_and_in_no_record(tmp_path: Path) -> None:
    plan = ["model=failing", "attack=pair", "attack.depth=9", "injection_tasks=[5]", "preflight=false"]
    session = planned(tmp_path / "runs", *plan, "executor.workers=12", "attack.attacker=failing")
    outcome = session.execute(Silent())
    assert outcome.finished == outcome.errors == 2
    made = attempts_in(tmp_path / "runs")
    numbers = [[one["agentsys"]["attempt"]["number"] for one in attempts] for attempts in made.values()]
    # The lead's eighth attempt is the errored one; that of the other cases was never made.
    assert sorted(map(len, numbers)) == [7, 7, 8] and max(map(max, numbers)) == 8
    stored = sum(
        usage["requests"]
        for attempts in made.values()
        for one in attempts
        for usage in one["agentsys"]["usage"].values()
    )
    entries = list(read_ledger(tmp_path / "runs" / ".agentsys" / LEDGER_FILE))
    assert len(entries) > stored
    assert session.usage_log is not None
    assert session.usage_log.meter.tokens == sum(entry.prompt + entry.completion for entry in entries)
    assert "Made ahead and thrown away" in outcome.summary
    thrown_away, queries = re.findall(r"(\d+) of (\d+) queries", outcome.summary)[0]
    agents = sum(entry.role != ATTACKER_ROLE for entry in entries)
    assert int(queries) == agents and int(thrown_away) > 0


def test_a_budget_that_has_no_room_for_the_whole_search_lets_nothing_be_made_ahead(tmp_path: Path) -> None:
    plan = ["model=failing", "attack=pair", "attack.depth=9", "injection_tasks=[5]", "preflight=false"]
    # Seven attempts of 400,000 tokens; the search could make 28.
    more = ["executor.workers=12", "attack.attacker=failing", "budget.tokens=5_000_000"]
    outcome = run(tmp_path / "runs", *plan, *more)
    assert (outcome.errors, outcome.budget, outcome.summary) == (2, None, "")


def test_cases_that_wait_for_a_search_hold_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_model, "LONGEST_S", 0.02)
    plan = ["model=delayed", "model.susceptibility=0", "attack=pair,none", "injection_tasks=[5]"]
    listener = Silent()
    session = planned(tmp_path / "runs", *plan, "attack.pair.search_on=1", "executor.workers=2")
    assert [job.case.attack == "none" for job in session.plan.jobs] == [False, False, True, True]
    assert session.execute(listener).errors == 0
    # The search leaves the second worker to the cases without one.
    assert [record.case.attack == "none" for record in listener.records] == [True, True, False, False]


class Counted:
    queries = 1


@pytest.mark.parametrize(
    ("failures", "distance", "admitted"),
    [(0, 1, False), (1, 1, False), (3, 1, True), (3, 9, False), (10, 9, True)],
)
def test_attempts_are_made_ahead_as_far_as_few_are_expected_to_be_thrown_away(
    failures: int, distance: int, admitted: bool
) -> None:
    limit, failed = AheadLimit(), Counted()
    for _ in range(failures):
        limit.count(cast(Any, failed), success=False)
    trials = [cast(Any, Counted()) for _ in range(2)]
    assert [limit.admit(trial, distance, 1) for trial in trials] == [admitted, admitted]
    if admitted:  # A run of successes ends it, whatever was seen before.
        for _ in range(20):
            limit.count(cast(Any, failed), success=True)
        assert not limit.admit(cast(Any, Counted()), 25, 30)
