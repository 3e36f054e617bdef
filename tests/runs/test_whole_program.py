"""A defense that runs a program of its own is refused where the benchmark leads the conversation."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from small_runs import Silent
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.runs.run_session import prepare_session

MODULE = """
from baselines.none import NoDefense

class Program(NoDefense):
    name = "program"
    whole_program = True
"""


def planned(tmp_path: Path, mode: str) -> int:
    """Cases planned for such a defense in a mode."""
    (tmp_path / "own_program.py").write_text(MODULE)
    folder = tmp_path / "configs" / "defense"
    folder.mkdir(parents=True)
    yaml = """
    # A defense for this test
    _target_: own_program.Program
    """
    (folder / "program.yaml").write_text(textwrap.dedent(yaml))
    session = prepare_session(
        [
            "benchmark=asb",
            f"benchmark.mode={mode}",
            "defense=program",
            "model=simulated",
            "attack=none",
            f"logdir={tmp_path}",
        ],
        config_dirs=[tmp_path / "configs"],
        plugin_paths=[tmp_path],
    )
    return len(session.plan.open_jobs)


@pytest.mark.parametrize("mode", ["faithful", "clean_plan", "hidden_tool"])
def test_it_is_refused_before_anything_runs_and_told_what_to_do(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"'program'.*several turns of asb-{mode}.*benchmark\.mode=react"):
        planned(tmp_path, mode)


SWEEP = ["benchmark=asb", "benchmark.mode=faithful,react", "defense=none,isolategpt", "limit_per_suite=1"]


def test_in_a_sweep_its_cells_can_be_left_out_and_the_tables_say_where_it_did_not_run(tmp_path: Path) -> None:
    overrides = [*SWEEP, f"logdir={tmp_path}"]
    with pytest.raises(ConfigError, match=r"1 of 4 cells cannot run here .*asb-faithful.*--skip-unavailable"):
        prepare_session(overrides)
    session = prepare_session(overrides, skip_unavailable=True)
    assert {(job.case.benchmark, job.case.defense) for job in session.plan.jobs} == {
        ("asb-faithful", "none"),
        ("asb-react", "none"),
        ("asb-react", "isolategpt"),
    }
    assert session.execute(Silent()).fatal is None
    shown = CliRunner().invoke(app, ["results", str(tmp_path), "--full"])
    told = " ".join(shown.output.split())
    assert "In mode react only: isolategpt. A defense that is a whole program of its own has no part" in told
