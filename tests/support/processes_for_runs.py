"""A program: several processes run one plan in one folder, some of them killed on the way. Prints a summary.

They are forked from one that has loaded and planned everything, so that they begin together and at once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from small_runs import Silent

from agentsys.runs.run_session import Session, prepare_session


class Telling(Silent):
    """Writes down each case that this process stored, and when another process did."""

    def __init__(self, log: int) -> None:
        super().__init__()
        self.log = log

    def on_case_stored(self, record: Any) -> None:
        os.write(self.log, f"{record.case.key}\n".encode())

    def on_attempt_stored(self, record: Any) -> None:
        os.write(self.log, f"{record.case.make_attempt_key(record.attempt.number)}\n".encode())

    def on_processes_joined(self, processes: Any) -> None:
        os.write(self.log, b"joined\n")


def started(session: Session, log: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        outcome = session.execute(Telling(log))
        os._exit(0 if outcome.fatal is None else 3)
    except BaseException as error:  # noqa: BLE001 - a child must never go on as its parent
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(4)


def main(folder: str, processes: str, kills: str, *overrides: str) -> None:
    root, chance = Path(folder), random.Random(7)
    log = os.open(root / "log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    session = prepare_session([*overrides, f"logdir={root / 'runs'}"])
    running = [started(session, log) for _ in range(int(processes))]
    killed = early = 0
    while killed < int(kills):
        time.sleep(chance.uniform(0.02, 0.12))
        victim = running.pop(chance.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        early += os.waitpid(victim, 0)[1] == signal.SIGKILL
        killed += 1
        running.append(started(session, log))
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in running]
    last = os.waitstatus_to_exitcode(os.waitpid(started(session, log), 0)[1])
    lines = (root / "log").read_text().split()
    summary = {
        "planned": [job.case.key for job in session.plan.jobs],
        "stored": [line for line in lines if line != "joined"],
        "joined": lines.count("joined"),
        "ends": [*ends, last],
        "killed under way": early,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main(*sys.argv[1:])
