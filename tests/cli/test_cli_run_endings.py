"""How `agentsys run` ends where money or nothing came of it: exit status, and one line that says why."""

from __future__ import annotations

from pathlib import Path

from click.testing import Result
from paid_server import calls, paid_model, paid_server, says
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.runs.run_totals import ErrorCount, describe_likely_cause

SLACK = ["benchmark.suites=[slack]", "limit_per_suite=2"]


def run(tmp_path: Path, *arguments: str) -> Result:
    conf = ["--config-dir", str(tmp_path / "conf")] if (tmp_path / "conf").exists() else []
    return CliRunner().invoke(app, ["run", *SLACK, f"logdir={tmp_path / 'runs'}", *conf, *arguments])  # type: ignore[return-value]


def test_a_run_of_which_nothing_completed_fails_and_says_what_is_likely(tmp_path: Path) -> None:
    with paid_server(lambda *_: calls("get_channels", "{")) as server:
        paid_model(tmp_path, server.url, retry={"attempts": 1})
        done = run(tmp_path, "model=paid")
        assert done.exit_code == 1
        assert "Nothing completed: 2 of 2 cases end in malformed_reply (" in done.output
        # What comes of a later run is looked at anew.
        server.answer = lambda *_: says()
        assert run(tmp_path, "model=paid").exit_code == 0


def test_a_replay_that_does_not_fit_names_the_preset_that_may() -> None:
    told = describe_likely_cause([ErrorCount("replay_diverged", 7, "replay_diverged: other text")])
    assert told.startswith("7 of 7 cases end in replay_diverged")
    assert "defense=NAME_compat" in told


def test_a_dear_plan_starts_only_with_a_budget_or_yes(tmp_path: Path) -> None:
    with paid_server(lambda *_: says()) as server:
        paid_model(tmp_path, server.url)
        refused = run(tmp_path, "model=paid", "budget.ask_above_usd=1")
        assert isinstance(refused.exception, Exception) and "This plan is estimated at $" in str(
            refused.exception
        )
        assert "budget.ask_above_usd=1" in str(refused.exception)
        assert server.asked == []
        assert run(tmp_path, "model=paid", "budget.ask_above_usd=1", "--yes").exit_code == 0
        assert (
            run(
                tmp_path, "model=paid", "user_tasks=[5]", "budget.ask_above_usd=1", "budget.usd=100"
            ).exit_code
            == 0
        )
        assert run(tmp_path, "model=paid", "user_tasks=[6]", "budget.ask_above_usd=1000").exit_code == 0


def test_a_run_that_meets_its_budget_says_so_and_is_no_failure(tmp_path: Path) -> None:
    with paid_server(lambda *_: says()) as server:
        paid_model(tmp_path, server.url)
        done = run(tmp_path, "model=paid", "budget.usd=5", "preflight=false")
    assert done.exit_code == 0
    assert "Ended by its budget: budget.usd=5 ($4.00 spent)" in done.output or "2 cases, " in done.output
    assert "by the ledger: 2 requests, 3,000 tokens, $4.00" in " ".join(done.output.split())
