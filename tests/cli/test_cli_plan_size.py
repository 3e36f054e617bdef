"""`agentsys plan-size`: more power takes more cases, and the answer says what they cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.analysis.statistics.planning import Difficulties, PlannedSuite, cases_needed
from agentsys.cli import app

_GRID = (PlannedSuite(16, 9), PlannedSuite(21, 5))


def test_more_power_and_tasks_that_differ_more_take_more_cases() -> None:
    usual = cases_needed(_GRID, 0.3, 0.2)
    assert cases_needed(_GRID, 0.3, 0.2, 0.8, Difficulties()) == usual
    assert cases_needed(_GRID, 0.3, 0.2, 0.95) > usual
    assert cases_needed(_GRID, 0.3, 0.2, 0.8, Difficulties(own=1.5)) > usual


@pytest.mark.slow
def test_the_answer_has_cases_and_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ["plan-size", "benchmark.suites=[slack]"]
    found = []
    for difference in ("5", "10"):
        done = CliRunner().invoke(app, [*plan, "--difference", difference, "--power", "0.8"])
        assert done.exit_code == 0, done.output
        found.append(int(re.findall(r"([\d,]+) cases per defense", done.stdout)[0].replace(",", "")))
        assert re.search(r"tool_filter: about \$\d", done.stdout)
        assert "gpt-4o-mini (629 cases, 55648d15)" in " ".join(done.stdout.split())
    assert found[0] > 2 * found[1] > 0


def test_a_fall_below_nothing_is_refused() -> None:
    done = CliRunner().invoke(app, ["plan-size", "--rate", "4", "--difference", "5"])
    assert "cannot fall by 5 points" in str(done.exception)
