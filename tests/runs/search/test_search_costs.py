"""What searches cost: announced, estimated, and booked once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
from searches_for_runs import BANKING, TWO_TASKS
from small_runs import Canonical, Silent, canonical

from agentsys.runs.run_session import prepare_session
from agentsys.runs.search_plan import describe_searches

Run = Callable[..., dict[str, Canonical]]


def test_the_plan_says_how_many_searches_and_at_most_how_many_queries(tmp_path: Path) -> None:
    transfer = prepare_session([*BANKING, f"logdir={tmp_path}"])
    assert describe_searches(transfer.plan.searched, transfer.store) == (
        "9 searches for an attack's text with at most 432 queries still to make, each a run of the agent."
    )
    per_case = prepare_session([*BANKING, "attack.mode=per_case", "user_tasks=[0,1]", f"logdir={tmp_path}"])
    told = describe_searches(per_case.plan.searched, per_case.store)
    assert told.startswith("18 searches ") and "at most 288 queries" in told
    assert prepare_session(["attack=direct", *BANKING[:2], f"logdir={tmp_path}"]).plan.searched == []


def test_the_plan_does_not_count_attempts_that_are_stored(run_cases: Run, tmp_path: Path) -> None:
    run_cases([*BANKING, "user_tasks=[3]", "injection_tasks=[0]", "model.susceptibility=0"])
    more = prepare_session(
        [*BANKING, "injection_tasks=[0]", "model.susceptibility=0", f"logdir={tmp_path / 'runs'}"]
    )
    told = describe_searches(more.plan.searched, more.store)
    assert told.startswith("1 search ") and "at most 0 queries" in told


def test_an_estimate_counts_the_whole_budget_of_target_and_attacker(tmp_path: Path) -> None:
    from agentsys.runs.preview import estimate_costs

    def tokens(*overrides: str) -> int:
        session = prepare_session(
            ["model=simulated", "benchmark.suites=[banking]", *overrides, f"logdir={tmp_path}"],
            rehearsal=True,
        )
        (guess,) = estimate_costs(session.plan.open_jobs, {}).values()
        return guess.tokens

    plain = tokens("attack=important_instructions", "limit_per_suite=20")
    assert tokens("attack=pair", "limit_per_suite=20") > 20 * plain
    small = ("attack.streams=1", "attack.depth=1", "attack.search_on=1")
    assert tokens("attack=pair", "limit_per_suite=20", *small) < 3 * plain


def test_totals_count_attempts_and_no_cost_twice(tmp_path: Path) -> None:
    from agentsys.cli.run_progress import RunningTotals

    listener = Silent()
    modes = "attack.mode=transfer,per_case"
    prepare_session([*TWO_TASKS, modes, "model.susceptibility=0.3", f"logdir={tmp_path}"]).execute(listener)
    totals = RunningTotals(len(listener.records))
    for record in listener.attempts:
        totals.add_attempt(record)
    for record in listener.records:
        totals.add(record)
    used = 0
    for path in tmp_path.rglob("*.json"):
        if ".agentsys" in path.parts:
            continue
        block = canonical(orjson.loads(path.read_bytes()))["agentsys"]
        # A case that a search was made for is one of its attempts over again.
        home = block["search"] is not None and block["search"]["mode"] == "per_case"
        if block["attempt"] is not None or not home:
            used += sum(usage["prompt"] + usage["completion"] for usage in block["usage"].values())
    assert totals.tokens == used
    assert totals.attempts == len(listener.attempts)
    assert f"attempts {totals.attempts}" in totals.format_figures()
