"""How `agentsys run` ends when it is told to, and that nobody reading it is no reason to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_runs import records_in

from agentsys.cli.terminal import raise_on_stop_signals
from agentsys.errors import StopRequested

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
    assert "stopping (interrupted): finishing 1 case;" in said
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
