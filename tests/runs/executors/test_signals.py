"""Signals that ask a run to end: workers pass them over, and its driver heeds them between two turns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_runs import records_in
from worker_model import asked, own_model

from agentsys.runs.executors import processes
from agentsys.runs.executors.signals import held_back

ENDING = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"]
LEAVES = """
import signal, subprocess, sys
from agentsys.runs.executors.signals import leave_to_driver
leave_to_driver()
for name in sys.argv[1:]:
    signal.raise_signal(getattr(signal, name))
subprocess.run([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGTERM).name)"])
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has none of them but Ctrl-C's")
def test_who_leaves_signals_to_a_driver_passes_them_over_and_what_it_starts_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES, *ENDING], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "SIG_DFL\n"), done.stderr


def _catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_worker_that_was_started_afresh_passes_them_over_till_its_driver_is_gone() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(processes._COMMAND, stdin=pipe, stdout=pipe) as worker:
        deadline = time.monotonic() + 60
        while not _catches(worker.pid, signal.SIGTERM):
            assert time.monotonic() < deadline, "SIGTERM would end it"
            time.sleep(0.02)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert worker.returncode == 0


def test_signals_that_are_held_back_strike_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    struck = list[int]()

    def strike(number: int, _: object) -> None:
        struck.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, strike) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with held_back() as heed:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert struck == []
            heed()
            assert struck == [signal.SIGTERM] * 2
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):  # nobody may ask any more
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                heed()
            heed()
        assert struck == [signal.SIGTERM] * 2 + [signal.SIGINT] * 2
        assert signal.getsignal(signal.SIGTERM) is strike
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_on_other_threads_nothing_is_held_back() -> None:
    before, inside = signal.getsignal(signal.SIGINT), list[object]()

    def hold() -> None:
        with held_back() as heed:
            heed()
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert inside == [before]


def _with_descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
@pytest.mark.parametrize("own_code", [True, False])
def test_a_signal_to_every_process_of_a_run_lets_all_finish_what_they_have(
    tmp_path: Path, own_code: bool
) -> None:
    """As batch systems send it; of code of ours alone the template is a copy of the command."""
    plan = ["benchmark.suites=[slack]", "executor=processes", "executor.processes=2", "executor.workers=6"]
    if own_code:
        conf, plugins = own_model(tmp_path, sleep_s=2.0)
        plan += ["model=own", "preflight=false", "--config-dir", str(conf), "--plugin-path", str(plugins)]
    else:
        plan += ["model=simulated", "attack=none,direct,important_instructions", "defense=none,agentsys"]
    command = [sys.executable, "-m", "agentsys", "run", *plan, f"logdir={tmp_path / 'runs'}"]
    under_way = (lambda: asked(tmp_path)) if own_code else (lambda: records_in(tmp_path / "runs"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 240
        while len(under_way()) < 4:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        everybody = _with_descendants(process.pid)
        assert len(everybody) == 4, "a driver, a template, two workers"
        for pid in everybody[::-1] * 2:  # more than once, and workers first
            os.kill(pid, signal.SIGTERM)
        said, complained = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGTERM, said + complained
    assert "Interrupted: " in said and "Traceback" not in complained
    records = records_in(tmp_path / "runs")
    assert all(record["agentsys"]["status"] == "ok" for record in records.values())
    assert not own_code or len(records) == len(asked(tmp_path)) < 21
    assert not list((tmp_path / "runs/.agentsys/claims").iterdir())
