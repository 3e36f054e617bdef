"""The example of a sweep by Hydra's launchers: its jobs leave the records of one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import Silent, records_in

from agentsys.runs.run_session import prepare_session

SWEEP = Path(__file__).parents[1] / "examples" / "hydra_launcher" / "sweep.py"
PLAN = ["model=simulated", "defense=none,agentsys", "benchmark.suites=[slack]", "limit_per_suite=1"]


def swept(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    hydra = [f"hydra.sweep.dir={folder / 'hydra'}", f"logdir={folder / 'swept'}"]
    command = [sys.executable, str(SWEEP), "--multirun", *overrides, *hydra]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_the_jobs_of_a_launcher_leave_the_records_of_one_command(launcher: str, tmp_path: Path) -> None:
    if launcher != "basic":
        pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    done = swept(tmp_path, *PLAN, f"hydra/launcher={launcher}")
    assert done.returncode == 0, done.stdout + done.stderr
    prepare_session([*PLAN, f"logdir={tmp_path / 'one'}"]).execute(Silent())
    assert records_in(tmp_path / "swept") == records_in(tmp_path / "one")
    assert len(records_in(tmp_path / "one")) == 2


@pytest.mark.slow
def test_a_job_whose_settings_are_wrong_fails(tmp_path: Path) -> None:
    done = swept(tmp_path, "model=simulated", "limit_per_suite=0")
    assert done.returncode != 0 and "limit_per_suite" in done.stdout + done.stderr
