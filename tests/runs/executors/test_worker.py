"""A worker as its driver knows it, in this process."""

from __future__ import annotations

import queue
from pathlib import Path

from agentsys.runs.executors.messages import CaseTask, CaseTasks, CellToBuild, Ended, Orders, Told
from agentsys.runs.executors.worker import CaseWorker
from agentsys.runs.session import prepare


def test_a_worker_has_nothing_under_way_when_its_driver_hears_of_its_last_case(tmp_path: Path) -> None:
    """The driver may end it then, and one that is ended while it is busy leaves its claims behind."""
    chosen = ["model=simulated", "benchmark.suites=[slack]", "attack=none", "limit=1", f"logdir={tmp_path}"]
    (job,) = prepare(chosen).plan.jobs
    settings = job.cell.settings
    heard: queue.SimpleQueue[tuple[Told, bool]] = queue.SimpleQueue()
    orders = Orders(tmp_path, Path.cwd(), threads=1)
    worker = CaseWorker(orders, lambda told: heard.put((told, worker.busy)))
    with worker:
        worker.hear(CellToBuild(0, settings, settings.config_hash, ()))
        worker.hear(CaseTasks([CaseTask(0, 0, job.case, None)]))
        assert worker.busy
        told = [heard.get(timeout=60)]
        while not isinstance(told[-1][0], Ended):
            told.append(heard.get(timeout=60))
    assert not told[-1][1]
