"""Many processes on one log folder do each case once, killed ones among them, and leave what one would."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_runs import errors_in, records_in
from worker_model import asked, own_model

from agentsys.base.ledger import read_ledger
from agentsys.runs.run_session import prepare_session

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
    plan = [*SMALL, "attack=none,direct", "limit=6"]
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
    plan = [*SMALL, "attack=none,direct", "defense=none,agentsys", f"limit={limit}"]
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills what Linux starts")
def test_sixty_kills_among_eight_plain_commands_lose_nothing(tmp_path: Path) -> None:
    """As users start them; only a command that has begun to work is killed.

    How often a case was run to its end the ledger tells, a line for each request.
    """
    conf, plugins = own_model(tmp_path, sleep_s=4.0)
    plan = ["model=own", "benchmark.suites=[slack]", "attack=none", "epochs=32", "preflight=false"]
    plan += ["executor.workers=2", f"logdir={tmp_path / 'runs'}"]
    command = [sys.executable, "-m", "agentsys", "run", *plan, "--quiet"]
    command += ["--config-dir", str(conf), "--plugin-path", str(plugins)]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)

    chance, running, killed = random.Random(7), [start() for _ in range(8)], 0
    while killed < 60:
        time.sleep(chance.uniform(0.1, 0.9))
        assert all(one.poll() is None for one in running), "a command ended before all kills were done"
        at_work = {process for process, _ in asked(tmp_path)}
        busy = [one for one in running if one.pid in at_work]
        if busy:
            victim = chance.choice(busy)
            victim.kill()
            killed += victim.wait() < 0
            running[running.index(victim)] = start()
    assert [one.wait(timeout=400) for one in running] == [0] * 8
    planned = prepare_session(plan, config_dirs=[conf], plugin_paths=[plugins]).plan
    assert (len(planned.jobs), planned.finished, planned.corrupt) == (672, 672, ())
    records = records_in(tmp_path / "runs")
    assert sorted(records) == sorted(job.case.key for job in planned.jobs) and not errors_in(records)
    assert left_over(tmp_path) == []
    times = Counter(entry.case for entry in read_ledger(tmp_path / "runs/.agentsys/ledger.jsonl"))
    again = sum(number - 1 for number in times.values())
    assert set(times) == set(records) and again <= 10, "a case was run twice to its end"
