"""Running figures: errored cases enter no rate, an unpriced call makes the cost unknown; lengths of ground truths."""

from __future__ import annotations

from typing import Any

import pytest
from stored_cases import case_of, span

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.cli.run_progress import CellTotals, RunningTotals
from agentsys.records.published_facts import find_ground_truth_length
from agentsys.records.schema import CaseRecord, RoleUsage
from agentsys.runs.build_record import count_ground_truth_calls
from agentsys.runs.cell import CellLabels


def record(
    *,
    attacked: bool,
    utility: bool,
    security: bool = False,
    status: str = "ok",
    cost: float | None = 0.5,
    defense: str = "none",
    seconds: float | None = None,
) -> CaseRecord:
    case = case_of(attack="direct" if attacked else "none", model="m", defense=defense)
    spans = [] if seconds is None else [span(0, None, "agent", attempt=1, duration_s=seconds)]
    return CaseRecord.model_validate(
        {
            "case": case,
            "status": status,
            "simulated": False,
            "spans": spans,
            "utility": utility,
            "security": security,
            "usage": {"agent": RoleUsage(prompt=900, completion=100, cost_usd=cost)},
        }
    )


def test_tokens_are_unknown_as_soon_as_one_reply_came_without_a_count() -> None:
    totals = RunningTotals(3, clock=lambda: 0.0)
    known = record(attacked=False, utility=True)
    totals.add(known)
    assert "tokens 1.0k" in totals.format_figures()
    totals.add(known.model_copy(update={"usage": {"agent": RoleUsage(uncounted=1)}}))
    totals.add(known)
    assert "tokens unknown, cost unknown" in totals.format_figures()


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
    line = f"{totals.progress}; {totals.format_figures()}"
    assert line.startswith("4/10 cases, 2.0 a second, 0:00:02 elapsed, 0:00:03 left; ")
    assert "ASR none 50.0%" in line
    assert "errors 1" in line
    assert "tokens 4.0k" in line
    assert "cost $2.00" in line


def test_each_cell_has_counts_of_its_own_and_rates_are_not_pooled_over_defenses() -> None:
    totals = RunningTotals(4)
    totals.add(record(attacked=True, utility=False, security=True))
    totals.add(record(attacked=True, utility=True, defense="agentsys"))
    totals.add(record(attacked=False, utility=True, defense="agentsys"))
    assert totals.compute_asr_by_defense() == {"none": "100.0%", "agentsys": "0.0%"}
    assert [cell.done for cell in totals.cells.values()] == [1, 1, 1]


def test_the_time_left_counts_what_cases_of_each_cell_take() -> None:
    now = [0.0]
    cheap, dear = CellLabels("m", "none", "direct"), CellLabels("m", "agentsys", "direct")
    totals = RunningTotals(20, lambda: now[0], {cheap: CellTotals(10), dear: CellTotals(10)})
    for _ in range(9):
        totals.add(record(attacked=True, utility=True, seconds=1.0))
    totals.add(record(attacked=True, utility=True, seconds=11.0, defense="agentsys"))
    now[0] = 10.0  # two cases at a time: 20 seconds of work
    assert totals.seconds_left == (1 * 1.0 + 9 * 11.0) / 2


@pytest.mark.parametrize("version", ["v1", "v1.2.2"])
def test_shipped_lengths_are_those_of_the_installed_agentdojo(version: str) -> None:
    suite = AgentDojo(version=version).suite("banking")
    found = {task: count_ground_truth_calls(suite, task) for task in suite.user_tasks}
    assert found == {task: find_ground_truth_length(version, "banking", task) for task in suite.user_tasks}
    assert None not in found.values()


def test_a_file_without_a_known_version_gets_the_value_of_the_first_version() -> None:
    assert find_ground_truth_length("unrecorded", "banking", "user_task_0") == find_ground_truth_length(
        "v1", "banking", "user_task_0"
    )


def test_a_task_whose_ground_truth_fails_has_no_length_and_costs_no_case() -> None:
    class Task:
        def init_environment(self, environment: Any) -> Any:
            raise KeyError("nothing here")

    class Suite:
        user_tasks = {"user_task_0": Task()}  # noqa: RUF012

        def load_and_inject_default_environment(self, injections: dict[str, str]) -> None:
            return None

    assert count_ground_truth_calls(Suite(), "user_task_0") is None
