"""Pairs that an attack does not apply to are left out of a plan, counted and announced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentdojo.task_suite import task_suite
from small_runs import Silent
from typer.testing import CliRunner

from agentsys.analysis.paper.paper_tables import TABLES, fill_table
from agentsys.attacks.injection_round import find_first_rounds
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records.case_reader import read_cases
from agentsys.runs.run_session import prepare_session

SLACK = ["model=simulated", "benchmark.suites=[slack]", "attack=injection_round"]


def planned(tmp_path: Path, *overrides: str) -> Any:
    return prepare_session([*overrides, f"logdir={tmp_path / 'runs'}"]).plan


def test_what_does_not_apply_is_left_out_and_counted_once_per_pair(tmp_path: Path) -> None:
    suite = AgentDojo("v1.2.2").suite("slack")
    users = {n for n, task in suite.user_tasks.items() if 2 in find_first_rounds(suite, task).values()}
    found = planned(tmp_path, *SLACK, "attack.round=2", "defense=none,agentsys", "epochs=2")
    assert {job.case.user_task_id for job in found.jobs} == users
    assert len(found.jobs) == len(users) * 5 * 2 * 2
    (left_out,) = found.skipped
    pairs = (21 - len(users)) * 5
    assert (left_out.pairs, left_out.cases, left_out.empty) == (pairs, pairs * 4, False)
    assert left_out.summary_line == (
        f"{pairs * 4} cases left out: injection_round+round=2 has nowhere to write in {pairs} pairs."
    )


def test_a_suite_is_asked_for_its_tasks_a_few_times_and_not_for_each_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []
    sort_out = task_suite.get_version_compatible_items
    monkeypatch.setattr(
        task_suite, "get_version_compatible_items", lambda *of: found.append(of) or sort_out(*of)
    )
    plan = planned(
        tmp_path,
        "model=simulated",
        "benchmark.suites=[slack]",
        "attack=important_instructions",
        "limit_per_suite=60",
    )
    assert len(plan.jobs) == 60
    assert 0 < len(found) < 20


def test_an_empty_cell_among_others_is_said_and_a_run_without_a_case_is_refused(tmp_path: Path) -> None:
    one = [*SLACK, "user_tasks=[0]"]
    found = planned(tmp_path, *one, "attack.round=1,2")
    assert [left_out.empty for left_out in found.skipped] == [True]
    assert "it has no case in this run" in found.skipped[0].summary_line
    with pytest.raises(ConfigError, match=r"No case to run: attack injection_round\+round=2 .* 5 pairs"):
        planned(tmp_path, *one, "attack.round=2")


def test_run_announces_what_it_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    entry = {"suite": "slack", "injection_task": "injection_task_1", "text": "Do it now, dear model, please."}
    file.write_text(json.dumps([entry]))
    overrides = ["model=simulated", "benchmark.suites=[slack]", "user_tasks=[0]", "attack=cached"]
    outcome = CliRunner().invoke(
        app, ["run", *overrides, f"attack.file={file}", f"logdir={tmp_path / 'runs'}", "executor.workers=1"]
    )
    assert outcome.exit_code == 0, outcome.output
    assert "4 cases left out: cached-mine has no text for 4 pairs." in outcome.output
    assert "1 case in 1 cell;" in outcome.output


def rounds_off(tmp_path: Path, suites: str) -> tuple[int, list[tuple[Any, ...]]]:
    """Runs every round on the plain simulated agent; the cases, and those that were met in another round."""
    session = prepare_session(
        [
            "model=simulated",
            f"benchmark.suites=[{suites}]",
            "attack=injection_round",
            "attack.round=1,2,3,4",
            f"logdir={tmp_path / 'runs'}",
            "executor.workers=1",
        ]
    )
    session.execute(Silent())
    cases = read_cases([tmp_path / "runs"]).cases
    wrong = [
        (case.suite, case.user_task_id, case.attack, case.raw_round, case.injection_round)
        for case in cases
        if not case.attack.endswith(f"round={case.raw_round}") or case.raw_round != case.injection_round
    ]
    return len(cases), wrong


def test_the_first_injected_result_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    count, wrong = rounds_off(tmp_path, "slack")
    assert count > 100 and wrong == []
    # The same runs fill Table 1, each round in its column.
    cases = read_cases([tmp_path / "runs"]).cases
    rows = [row for row in fill_table(TABLES[1], cases, replicates=50).rows if row.line is not None]
    shown = {
        (row.band.labels[0], place + 1): cell.ours.n
        for row in rows
        for place, cell in enumerate(row.cells)
        if cell.ours is not None
    }
    in_cases = {
        (str(length), round_): sum(
            (c.trajectory_length, c.injection_round) == (length, round_) for c in cases
        )
        for length in (2, 3, 4)
        for round_ in (1, 2, 3, 4)
    }
    assert shown == {place: n for place, n in in_cases.items() if n}
    assert len(shown) > 3


@pytest.mark.slow
def test_the_same_holds_on_the_larger_suites(tmp_path: Path) -> None:
    assert rounds_off(tmp_path, "travel,workspace") == (761, [])
