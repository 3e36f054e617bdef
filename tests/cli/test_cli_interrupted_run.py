"""A run that is stopped before any case is stored says so; there is no table to show yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.runs.run_session import Session
from agentsys.runs.run_totals import Listener, RunOutcome


@pytest.mark.parametrize(
    ("outcome", "code", "says"),
    [
        (RunOutcome(0, 0, interrupted=True), 130, "Interrupted: 0 cases finished in this run, and on disk."),
        (RunOutcome(0, 0, interrupted=True, signal=15), 143, "Interrupted: 0 cases finished in this run"),
        (RunOutcome(0, 0, fatal="No room on the disk."), 1, "Stopped early: No room on the disk."),
    ],
)
def test_a_run_stopped_within_its_first_searches_tells_how_to_go_on(
    outcome: RunOutcome, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempts_only(session: Session, listener: Listener) -> RunOutcome:
        case = session.plan.jobs[0].case
        path = session.store.root / case.attempt_key(1)
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        return outcome

    monkeypatch.setattr(Session, "execute", attempts_only)
    plan = ["model=simulated", "defense=none", "attack=pair", "benchmark.suites=[slack]", "limit_per_suite=1"]
    ended = CliRunner().invoke(app, ["run", *plan, f"logdir={tmp_path}"])
    assert ended.exit_code == code, ended.output
    assert says in ended.output
    assert "run the same command again" in ended.output


def test_code_that_broke_is_shown_once_and_steers_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = RunOutcome(2, 2, elsewhere=1, tracebacks=("Traceback:\n  File x\nKeyError: '\x1b[31m'",))
    monkeypatch.setattr(Session, "execute", lambda *_: broke)
    plan = ["model=simulated", "defense=none", "benchmark.suites=[slack]", "limit_per_suite=3"]
    ended = CliRunner().invoke(app, ["run", *plan, f"logdir={tmp_path}"])
    assert ended.output.count("Traceback:") == 1
    assert "KeyError: '\\x1b[31m'" in ended.output
    assert "Run by other processes meanwhile: 1 case of this plan." in ended.output
