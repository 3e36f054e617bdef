"""A run killed at random moments and resumed ends like an uninterrupted one: none twice, none half."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from small_runs import Silent, records_in

PLAN = [
    "model=simulated",
    "defense=agentsys",
    "attack=important_instructions",
    "benchmark.suites=[banking]",
    "limit_per_suite=48",
]
KILLS = 20


@pytest.mark.slow
def test_a_run_killed_twenty_times_ends_with_the_records_of_an_uninterrupted_one(tmp_path: Path) -> None:
    from agentsys.runs.run_session import prepare_session

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    session, start = prepare_session([*PLAN, f"logdir={whole}"]), time.monotonic()
    session.execute(Silent())
    longest = max(0.2, (time.monotonic() - start) / 4)  # a busy machine has stored nothing after 0.2 s
    moments = random.Random(7)
    seen: list[set[str]] = []
    for _ in range(KILLS):
        _run_and_kill_after(moments.uniform(0.0, longest), [*PLAN, f"logdir={cut}"])
        seen.append(set(records_in(cut)))
        assert all(early <= seen[-1] for early in seen), "a finished record was lost"
    finished = prepare_session([*PLAN, f"logdir={cut}"])
    untouched = {path: (cut / path).stat().st_mtime_ns for path in seen[-1]}
    finished.execute(Silent())
    assert records_in(cut) == records_in(whole)
    assert {path: (cut / path).stat().st_mtime_ns for path in untouched} == untouched, (
        "a finished case ran twice"
    )
    assert len({len(names) for names in seen}) > 2, "the kills did not hit the run at different moments"


def _run_and_kill_after(seconds: float, overrides: list[str]) -> None:
    """Run in a forked child (everything is imported already) and kill it, wherever it is by then."""
    from agentsys.runs.run_session import prepare_session

    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            session = prepare_session([*overrides, "executor.workers=2"])
            os.write(tell, b"x")
            session.execute(Silent())
        finally:
            os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(tell)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
