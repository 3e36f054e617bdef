"""Running figures: errored cases enter no rate, an unpriced call makes the cost unknown."""

from __future__ import annotations

from agentsys.amounts import duration
from agentsys.records.case import Case
from agentsys.records.schema import CaseRecord, RoleUsage
from agentsys.runs.totals import RunningTotals


def record(
    *, attacked: bool, utility: bool, security: bool = False, status: str = "ok", cost: float | None = 0.5
) -> CaseRecord:
    case = Case(
        benchmark="agentdojo",
        version="v1",
        suite="banking",
        user_task_id="user_task_0",
        injection_task_id="injection_task_0" if attacked else None,
        attack="direct" if attacked else "none",
        model="m",
        defense="none",
    )
    return CaseRecord.model_validate(
        {
            "case": case,
            "status": status,
            "simulated": False,
            "utility": utility,
            "security": security,
            "usage": {"agent": RoleUsage(prompt=900, completion=100, cost_usd=cost)},
        }
    )


def test_tokens_are_unknown_as_soon_as_one_reply_came_without_a_count() -> None:
    totals = RunningTotals(3, clock=lambda: 0.0)
    known = record(attacked=False, utility=True)
    totals.add(known)
    assert "tokens 1.0k" in totals.figures()
    totals.add(known.model_copy(update={"usage": {"agent": RoleUsage(uncounted=1)}}))
    totals.add(known)
    assert "tokens unknown, cost unknown" in totals.figures()


def test_rates_leave_errors_out_and_costs_add_up() -> None:
    now = [0.0]
    totals = RunningTotals(10, clock=lambda: now[0])
    for one in (
        record(attacked=False, utility=True),
        record(attacked=True, utility=False, security=True),
        record(attacked=True, utility=True),
        record(attacked=True, utility=False, status="error"),
    ):
        totals.add(one)
    now[0] = 2.0
    assert (totals.per_second, totals.seconds_left) == (2.0, 3.0)
    line = totals.figures()
    assert "benign utility 100.0%" in line
    assert "under attack 50.0%" in line
    assert "ASR 50.0%" in line
    assert "errors 1" in line
    assert "tokens 4.0k" in line
    assert "cost $2.00" in line


def test_one_unpriced_call_makes_the_cost_unknown() -> None:
    totals = RunningTotals(2)
    totals.add(record(attacked=False, utility=True, cost=None))
    totals.add(record(attacked=False, utility=True))
    assert "cost unknown" in totals.figures()


def test_before_the_first_case_nothing_is_claimed() -> None:
    totals = RunningTotals(3, clock=lambda: 0.0)
    assert totals.seconds_left is None
    assert "ASR -" in totals.figures()
    assert duration(None) == "-"
    assert duration(3725) == "1:02:05"
