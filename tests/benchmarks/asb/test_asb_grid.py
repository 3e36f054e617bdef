"""How many cases ASB has: 400 per attack type, 2,000 for the five, 2,040 over all tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsys.runs.plan import Plan
from agentsys.runs.run_session import prepare_session

SHARED = Path(__file__).parents[3].parent / "shared/data/asb"
FIVE = "opi_naive,opi_fake_completion,opi_escape_characters,opi_context_ignoring,opi_combined_attack"


def planned(tmp_path: Path, *overrides: str) -> Plan:
    if not SHARED.is_dir():
        pytest.skip(f"ASB's own files are not here: {SHARED}")
    fixed = ["benchmark=asb", f"benchmark.data={SHARED}", "model=simulated", f"logdir={tmp_path}"]
    return prepare_session([*fixed, *overrides]).plan


def test_the_published_grid_has_400_cases_per_attack_type_and_2000_in_all(tmp_path: Path) -> None:
    jobs = planned(tmp_path, f"attack={FIVE}").jobs
    assert len(jobs) == 2000
    of_one = [job.case for job in jobs if job.case.attack == "opi_context_ignoring"]
    assert len(of_one) == 400
    assert {case.user_task_id for case in of_one} == {"user_task_0"}
    assert {case.suite: 0 for case in of_one}.keys() == {case.suite for case in of_one}
    assert len({case.suite for case in of_one}) == 10
    assert {case.version for case in of_one} == {"v1-e115f1aa"}


def test_clean_cases_are_run_once_per_task_not_once_per_attack_tool(tmp_path: Path) -> None:
    assert len(planned(tmp_path, "attack=none", "benchmark.tasks=all").jobs) == 51
