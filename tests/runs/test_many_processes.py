"""Many processes on one log folder do each case once, killed ones among them, and leave what one would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_runs import records_in

SUPPORT = Path(__file__).parents[1] / "support"
SMALL = ["model=simulated", "executor.workers=2", "benchmark.suites=[slack,workspace]"]
SEARCHED = ["model=simulated", "executor.workers=2", "benchmark.suites=[slack]", "user_tasks=[1,2,3,4]"]


def together(folder: Path, processes: int, kills: int, *overrides: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    program = str(SUPPORT / "processes_for_runs.py")
    command = [sys.executable, program, str(folder), str(processes), str(kills), *overrides]
    path = os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert set(summary["ends"]) == {0}, done.stderr
    return summary


def alone(folder: Path, plan: list[str]) -> dict[str, Any]:
    """The records of one process that nobody disturbs."""
    together(folder / "alone", 1, 0, *plan)
    return records_in(folder / "alone/runs")


def left_over(folder: Path) -> list[str]:
    """Temporary files, claims and signs of life."""
    claims = [str(path) for path in (folder / "runs/.agentsys/claims").iterdir()]
    return claims + [str(path) for path in (folder / "runs").rglob(".*.tmp")]


@pytest.mark.slow
def test_two_processes_share_the_cases_and_leave_what_one_would(tmp_path: Path) -> None:
    plan = [*SMALL, "attack=none,direct", "limit_per_suite=6"]
    summary = together(tmp_path, 2, 0, *plan)
    assert sorted(summary["stored"]) == sorted(summary["planned"])
    assert summary["joined"] >= 1
    assert left_over(tmp_path) == []
    assert records_in(tmp_path / "runs") == alone(tmp_path, plan)


@pytest.mark.slow
def test_a_search_that_several_cases_need_is_made_by_one_process(tmp_path: Path) -> None:
    plan = [*SEARCHED, "attack=pair", "attack.mode=transfer", "injection_tasks=[1,2]"]
    summary = together(tmp_path, 3, 0, *plan)
    assert len(summary["stored"]) == len(set(summary["stored"]))
    assert {line for line in summary["stored"] if ".attempts/" not in line} == set(summary["planned"])
    assert left_over(tmp_path) == []
    assert records_in(tmp_path / "runs") == alone(tmp_path, plan)
    artefact = Path(".agentsys/searches")
    ours, its = (
        {path.name: path.read_bytes() for path in (folder / "runs" / artefact).rglob("*.json")}
        for folder in (tmp_path, tmp_path / "alone")
    )
    assert ours.keys() == its.keys()
    assert all(json.loads(ours[name]) == json.loads(its[name]) for name in ours)


@pytest.mark.parametrize(
    ("processes", "kills", "limit"),
    [
        pytest.param(3, 4, 4, marks=pytest.mark.slow),
        pytest.param(8, 0, 40, marks=pytest.mark.slow),
        pytest.param(8, 60, 40, marks=pytest.mark.slow),
    ],
)
def test_many_processes_and_many_kills_lose_and_double_nothing(
    processes: int, kills: int, limit: int, tmp_path: Path
) -> None:
    plan = [*SMALL, "attack=none,direct", "defense=none,agentsys", f"limit_per_suite={limit}"]
    summary = together(tmp_path, processes, kills, *plan)
    stored = summary["stored"]
    assert len(stored) == len(set(stored)), "a case was stored twice"
    # Who is killed between storing a case and saying so has said nothing; the records tell.
    assert set(stored) <= set(summary["planned"])
    assert len(stored) >= len(summary["planned"]) - kills
    assert kills == 0 or summary["killed under way"] >= kills // 2
    assert left_over(tmp_path) == []
    records = records_in(tmp_path / "runs")
    assert sorted(records) == sorted(summary["planned"])
    assert records == alone(tmp_path, plan)
