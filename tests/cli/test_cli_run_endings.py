"""How `agentsys run` ends where it is stopped, or money or nothing came of it: status, and a line that says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from paid_server import paid_model, paid_server, says
from small_runs import records_in
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.cli.terminal import raise_on_stop_signals
from agentsys.errors import StopRequested
from agentsys.runs.run_session import Session
from agentsys.runs.run_totals import ErrorCount, Listener, RunOutcome, describe_likely_cause

SLACK = ["benchmark.suites=[slack]", "limit_per_suite=2"]


def run(tmp_path: Path, *arguments: str) -> Result:
    conf = ["--config-dir", str(tmp_path / "conf")] if (tmp_path / "conf").exists() else []
    return CliRunner().invoke(app, ["run", *SLACK, f"logdir={tmp_path / 'runs'}", *conf, *arguments])  # type: ignore[return-value]


def test_a_run_of_which_nothing_completed_fails_and_says_what_is_likely(tmp_path: Path) -> None:
    with paid_server(lambda *_: (200, {"choices": [{}]})) as server:
        paid_model(tmp_path, server.url, retry={"attempts": 1})
        done = run(tmp_path, "model=paid", "preflight=false")
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
        path = session.store.root / case.make_attempt_key(1)
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


SLOW = """
import time
from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant


class SlowModel:
    def __init__(self, name: str) -> None:
        self.name = name

    def complete(self, request: ChatRequest) -> ChatReply:
        time.sleep(2)  # longer than the second after which a signal is heeded at the latest
        return ChatReply(assistant("done", None), Usage(1, 1))
"""


def command(tmp_path: Path) -> list[str]:
    (tmp_path / "conf/model").mkdir(parents=True, exist_ok=True)
    (tmp_path / "slow_model.py").write_text(SLOW)
    (tmp_path / "conf/model/slow.yaml").write_text(
        "_target_: slow_model.SlowModel\nname: slow\nprose_name: S\n"
    )
    own = ["--config-dir", str(tmp_path / "conf"), "--plugin-path", str(tmp_path)]
    plan = ["model=slow", "benchmark.suites=[slack]", "executor.workers=1", f"logdir={tmp_path / 'runs'}"]
    return [sys.executable, "-m", "agentsys", "run", *plan, *own]


def until_under_way(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs").rglob("none.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_the_system_is_a_first_ctrl_c(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        command(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Under nohup, which these tests may be, a hangup is ignored, and so it would be by the run.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        until_under_way(tmp_path, process)
        process.send_signal(number)
        process.send_signal(number)
        said, complained = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "stopping (interrupted)" in said  # with no case, where it came between two
    assert "finished in this run, and on disk" in said
    assert complained == ""
    assert 0 < len(records_in(tmp_path / "runs")) < 21
    assert not list((tmp_path / "runs/.agentsys/claims").iterdir())


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has none")
def test_of_a_systems_signals_the_first_alone_is_heeded() -> None:
    with raise_on_stop_signals():
        with pytest.raises(StopRequested):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)


@pytest.mark.slow
def test_a_run_outlives_whoever_reads_it(tmp_path: Path) -> None:
    plan = [*command(tmp_path), "user_tasks=[1,2]"]
    read, write = os.pipe()
    with subprocess.Popen(plan, stdout=write, stderr=subprocess.PIPE, text=True) as process:
        os.close(write)
        os.close(read)
        _, complained = process.communicate(timeout=120)
    assert (process.returncode, complained) == (0, "")
    assert len(records_in(tmp_path / "runs")) == 2
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *plan], stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert (closed.returncode, closed.stderr) == (0, "")
