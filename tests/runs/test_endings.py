"""What a model did itself is scored as it stands: a reply cut at a bound, and rounds that are used up."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_model import write_faulty_config
from typer.testing import CliRunner

from agentsys.analysis.metrics.rates import measure
from agentsys.cli import app
from agentsys.records.case_reader import read_cases

SUITE = ["defense=none", "attack=none", "benchmark.suites=[banking]", "limit_per_suite=8"]


@pytest.mark.parametrize(("fault", "ended"), [("ramble", "cut"), ("loop", "rounds")])
def test_a_case_that_ends_at_a_bound_is_scored_and_counted_beside(
    fault: str, ended: str, tmp_path: Path
) -> None:
    chosen = [*write_faulty_config(tmp_path / "conf"), f"model.fault={fault}", *SUITE]
    ran = CliRunner().invoke(app, ["run", *chosen, f"logdir={tmp_path / 'runs'}"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    cases = read_cases([tmp_path / "runs"]).cases
    assert [(case.status, case.ended) for case in cases] == [("ok", ended)] * 8
    if fault == "ramble":
        assert all(case.odd_replies == {"simulated": {"cut": 1}} for case in cases)
    told = CliRunner().invoke(app, ["results", str(tmp_path / "runs"), "--full"]).output
    assert f"ended at a bound ({ended} 8, of 8 cases)" in " ".join(told.split())
    assert {row.n for row in measure(cases)} == {8}
