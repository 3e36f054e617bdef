"""ASR at a budget of queries, from attempts as a search stores them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from command_output import command_output
from stored_cases import case_of, store_own

from agentsys.analysis.metrics.search_budget import (
    ASR,
    ASR_BY_ATTEMPTS,
    BudgetRow,
    measure_budgets,
    read_searches,
)
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.records.case_reader import read_cases
from agentsys.records.schema import UNFINISHED, AttemptFacts, CaseRecord, RoleUsage, SearchFacts

BUDGET = 10


def store_search(
    logdir: Path,
    found_at: int | None = None,
    *,
    made: int = BUDGET,
    refused: int = 0,
    error: bool = False,
    error_kind: str = "unavailable",
    final: bool = True,
    cost: float | None = 0.5,
    fault: str | None = None,
    lead: str | None = None,
    tried_on: int = 1,
    **fields: Any,
) -> Path:
    """A search as the runner leaves it; returns the folder of its attempts."""
    case = case_of(**{"attack": "pair-transfer", "defense": "none"} | fields)
    made = found_at or made
    for number in range(1, made + 1):
        not_run = number <= refused
        usage = {"attacker": RoleUsage(calls=1, prompt=7, completion=3, cost_usd=cost)}
        if not not_run:
            usage |= {
                role: RoleUsage(calls=1, prompt=90, completion=10, cost_usd=2.0)
                for role in ("main", "worker")
            }
        block = CaseRecord(
            case=case,
            status="error" if error and number == made else "ok",
            error_kind=error_kind if error and number == made else None,
            simulated=True,
            utility=False,
            security=number == found_at,
            usage=usage,
            attempt=AttemptFacts(
                number=number,
                stream=1,
                depth=number,
                parent=None,
                text="t",
                refused="lost" if not_run else None,
                fault=fault,
                lead=lead,
                tried_on=tried_on,
                carried_out=tried_on * (number == found_at),
            ),
        )
        path = logdir / case.make_attempt_key(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"agentsys": block.model_dump(mode="json")}))
    if final and not error:
        facts = SearchFacts(
            mode="transfer",
            budget=BUDGET,
            attempts=made,
            refused=refused,
            found_at=found_at,
            user_task_id=case.user_task_id,
            fault=fault,
        )
        store_own(logdir, case, simulated=True, security=found_at is not None, search=facts)
    return (logdir / case.make_attempt_key(1)).parent


def tasks(logdir: Path, suite: str, *found: int | None, **more: Any) -> None:
    for number, at in enumerate(found):
        store_search(logdir, at, suite=suite, injection_task_id=f"injection_task_{number}", **more)


def by_place(logdir: Path, measure: str = ASR) -> dict[tuple[str, int | None], BudgetRow]:
    rows = measure_budgets(read_searches([logdir]).found)
    return {(row.suite, row.budget): row for row in rows if row.measure == measure}


def test_asr_grows_with_the_budget_and_overall_is_the_mean_of_the_suites(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 1, 2, None, None)
    tasks(tmp_path, "slack", 3, 10)
    rows = by_place(tmp_path)
    values = {
        budget: [rows[s, budget].value for s in ("banking", "slack", "overall")] for budget in (1, 2, 5, 10)
    }
    assert values == {1: [25, 0, 12.5], 2: [50, 0, 25], 5: [50, 50, 50], 10: [50, 100, 75]}
    assert {budget for _, budget in rows} == {1, 2, 5, 10}
    assert rows["overall", 5].n == 6
    assert 0 <= rows["overall", 5].ci_low < 50 < rows["overall", 5].ci_high <= 100


def test_an_errored_or_interrupted_search_is_in_no_rate_and_is_counted_beside(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 1, None)
    store_search(tmp_path, made=3, error=True, injection_task_id="injection_task_7")
    store_search(tmp_path, made=3, final=False, injection_task_id="injection_task_8")
    row = by_place(tmp_path)["banking", 10]
    assert (row.value, row.n, row.errored, row.unfinished) == (50.0, 2, 1, 1)


def test_a_search_killed_while_its_query_ran_is_interrupted_not_errored(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 1, None)
    store_search(tmp_path, made=3, error=True, error_kind=UNFINISHED, injection_task_id="injection_task_7")
    row = by_place(tmp_path)["banking", 10]
    assert (row.value, row.n, row.errored, row.unfinished) == (50.0, 2, 0, 1)


def test_a_success_counts_though_the_run_ended_before_the_case_was_stored(tmp_path: Path) -> None:
    store_search(tmp_path, 2, final=False)
    row = by_place(tmp_path)["banking", 2]
    assert (row.value, row.n, row.unfinished) == (100.0, 1, 0)


def test_defenses_attacks_epochs_and_user_tasks_are_searches_of_their_own(tmp_path: Path) -> None:
    for fields in (
        {},
        {"defense": "agentsys"},
        {"attack": "tap-per_case"},
        {"epoch": 1},
        {"user_task_id": "user_task_1"},
    ):
        store_search(tmp_path, 1, **fields)
    found = read_searches([tmp_path]).found
    assert len(found) == 5
    rows = [r for r in measure_budgets(found) if (r.suite, r.measure, r.budget) == ("banking", ASR, 1)]
    assert [(row.defense, row.attack, row.n) for row in rows] == [
        ("none", "pair-transfer", 3),
        ("agentsys", "pair-transfer", 1),
        ("none", "tap-per_case", 1),
    ]


def test_queries_tokens_and_costs_of_attacker_and_target_are_apart(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 4, 2, refused=1)
    found = {
        name: by_place(tmp_path, name)["overall", None]
        for name in (
            "queries_to_success",
            "queries",
            "attempts",
            "refused",
            "attacker_tokens",
            "target_tokens",
        )
    }
    assert {name: row.value for name, row in found.items()} == {
        "queries_to_success": 2.0,
        "queries": 4.0,
        "attempts": 6.0,
        "refused": 2.0,
        "attacker_tokens": 60.0,
        "target_tokens": 800.0,
    }
    assert by_place(tmp_path, "attacker_cost_usd")["overall", None].value == 3.0
    assert by_place(tmp_path, "target_cost_usd")["overall", None].value == 16.0


def test_queries_and_attempts_are_two_axes(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 4, refused=2)
    by_query, by_attempt = by_place(tmp_path), by_place(tmp_path, ASR_BY_ATTEMPTS)
    assert [by_query["banking", budget].value for budget in (1, 2, 5)] == [0, 100, 100]
    assert [by_attempt["banking", budget].value for budget in (1, 2, 5)] == [0, 0, 100]


def test_a_search_without_a_text_is_in_no_rate_and_is_said(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 1, None)
    for number, fault in ((7, "attacker_refused"), (8, "attacker_unreadable")):
        store_search(tmp_path, made=1, refused=1, fault=fault, injection_task_id=f"injection_task_{number}")
    row = by_place(tmp_path)["banking", 10]
    assert (row.value, row.n, row.errored, row.unfinished, row.no_text) == (50.0, 2, 0, 0, 2)
    text = " ".join(command_output("results", tmp_path, "--by", "budget").split())
    assert "2 of 4 searches tried no text" in text
    assert "attacker_refused 1, attacker_unreadable 1" in text


def test_a_transfer_is_told_beside_the_attack_it_starts_from_on_the_same_cases(tmp_path: Path) -> None:
    homes = SearchFacts(
        mode="transfer",
        budget=BUDGET,
        attempts=1,
        refused=0,
        found_at=None,
        user_task_id="user_task_0",
        homes=("user_task_0",),
    )
    for task in range(4):
        place = {"user_task_id": f"user_task_{task}", "injection_task_id": "injection_task_0"}
        search = homes if task == 0 else homes.model_copy(update={"user_task_id": "user_task_0"})
        store_own(
            tmp_path / "found",
            case_of(attack="pair-transfer-task", **place),
            security=task < 2,
            search=search,
        )
        store_own(tmp_path / "start", case_of(attack="important_instructions", **place), security=task > 0)
    alone = " ".join(tuple(write_report_notes(ResultFrame(read_cases([tmp_path / "found"])))))
    assert "no line of the attack its texts start from stands beside it" in alone
    both = " ".join(
        tuple(write_report_notes(ResultFrame(read_cases([tmp_path / "found", tmp_path / "start"]))))
    )
    assert "pair-transfer-task: ASR 33.33 is below 100.00 of important_instructions" in both
    assert "on the same 3 cases" in both
    assert "pair-transfer-task+home: the cases that the texts were searched on" in both


def test_a_candidate_tried_on_several_user_tasks_is_one_attempt_and_so_many_queries(tmp_path: Path) -> None:
    lead = {"attack": "pair-transfer-task", "user_task_id": "user_task_3"}
    store_search(tmp_path, 2, tried_on=3, **lead)  # type: ignore[arg-type]
    for task in ("user_task_5", "user_task_9"):
        store_search(tmp_path, made=2, final=False, lead="user_task_3", **{**lead, "user_task_id": task})  # type: ignore[arg-type]
    (search,) = read_searches([tmp_path]).found
    assert (search.case.user_task_id, search.attempts, search.queries) == ("user_task_3", 2, 6)
    assert (search.found_at, search.found_query) == (2, 6)
    assert search.target.tokens == 3 * 2 * 200
    rows = by_place(tmp_path)
    assert [rows["banking", budget].value for budget in (5, 10, 30)] == [0, 100, 100]


def test_an_unknown_price_makes_the_cost_unknown_not_smaller(tmp_path: Path) -> None:
    tasks(tmp_path, "banking", 1, cost=None)
    assert math.isnan(by_place(tmp_path, "attacker_cost_usd")["overall", None].value)
    assert by_place(tmp_path, "queries_to_success")["overall", None].value == 1.0


def test_files_that_cannot_be_used_are_named_and_their_search_counts_as_errored(tmp_path: Path) -> None:
    folder = store_search(tmp_path, None)
    (folder / "0004.json").write_text("{")
    store_search(tmp_path, 2, injection_task_id="injection_task_1")
    searches = read_searches([tmp_path, tmp_path])
    assert [Path(skip.path).name for skip in searches.skipped] == ["0004.json"]
    assert [search.errored for search in searches.found] == [True, False]
    (folder / "0004.json").unlink()  # a gap is no better
    assert read_searches([tmp_path]).found[0].errored


def test_an_attempt_of_another_case_is_not_counted_here(tmp_path: Path) -> None:
    folder = store_search(tmp_path, None, made=2)
    other = store_search(tmp_path, 1, injection_task_id="injection_task_1")
    (folder / "0003.json").write_text((other / "0001.json").read_text())
    searches = read_searches([tmp_path])
    assert "another case" in searches.skipped[0].reason
    assert searches.found[0].found_at is None


def test_a_search_stored_twice_is_counted_once(tmp_path: Path) -> None:
    store_search(tmp_path / "a", 1)
    store_search(tmp_path / "b", 1)
    searches = read_searches([tmp_path / "a", tmp_path / "b"])
    assert (len(searches.found), searches.repeated) == (1, 1)
