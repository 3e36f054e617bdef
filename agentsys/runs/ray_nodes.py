"""Runs cases on the nodes of a Ray cluster.

Each node runs the same command on the shared log folder: nodes share cases, rates and the budget as several commands on
one folder do. The command itself only watches what they store.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError
from agentsys.models.budget import Meter
from agentsys.runs.case_outcome import CaseEnd
from agentsys.runs.cell import CellLabels, Job
from agentsys.runs.executors import LOOK_EVERY_S, run_loop
from agentsys.runs.run_totals import AbandonedCell, Listener, RunOutcome, RunTally
from agentsys.runs.settings import ExecutorSettings
from agentsys.runs.store import Store


def run_on_nodes(
    work: Callable[[], RunOutcome],
    jobs: Sequence[Job],
    executor: ExecutorSettings,
    *,
    store: Store,
    listener: Listener,
    meter: Meter | None,
) -> RunOutcome:
    """Run every job on the nodes of a Ray cluster; otherwise as `run_on_threads` does.

    Raises:
        ConfigError: If there is no cluster at the address.
    """
    with _join_cluster(executor.address) as ray:
        # Each node counts its own: records are read here in the plan's order, not as they ended.
        tally = RunTally(jobs, listener, meter, counts_streaks=False)
        nodes = NodeExecutor(ray, work, jobs, store, executor.workers)
        try:
            run_loop(nodes, tally)
        finally:
            nodes.cancel()
        nodes.explain_missing(tally)
        cells: dict[CellLabels, AbandonedCell] = {}
        for cell in (cell for outcome in nodes.outcomes for cell in outcome.ended_cells):
            cells.setdefault(cell.labels, cell)
        return replace(tally.outcome, ended_cells=tuple(cells.values()))


@contextmanager
def _join_cluster(address: str | None) -> Iterator[Any]:
    """Join a Ray cluster inside the block; a cluster that this process joined before stays joined."""
    import ray

    ours = not ray.is_initialized()
    if ours:
        on_term = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            raise ConfigError(f"executor.address={address}: no Ray cluster is there ({error}).") from None
        if threading.current_thread() is threading.main_thread():
            # Ray 2.60 puts a handler there that exits at once, while nodes have cases under way.
            signal.signal(signal.SIGTERM, on_term)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


class NodeExecutor:
    """Has each node of a cluster run the cases, and reads what they store.

    Args:
        ray: The package, joined to the cluster.
        work: Runs the plan on a node.
        jobs: The cases.
        store: The log folder, which all nodes share.
        workers: Number of cases that a node runs at the same time.
    """

    def __init__(
        self, ray: Any, work: Callable[[], RunOutcome], jobs: Sequence[Job], store: Store, workers: int
    ) -> None:
        self._ray, self._work, self._jobs = ray, work, jobs
        self._store, self._workers = store, workers
        self._stored = bytearray(len(jobs))
        self._look_at = 0.0
        self.outcomes: list[RunOutcome] = []
        """Outcomes of the nodes that have ended."""
        self._failures: list[str] = []
        self._tasks = {self._start_task(node): node for node in ray.nodes() if node["Alive"]}

    def _start_task(self, node: dict[str, Any]) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        # num_cpus=0: the work mostly waits for models. max_calls=1: a fresh process, not changed by an earlier run.
        remote = self._ray.remote(num_cpus=0, max_retries=0, max_calls=1, scheduling_strategy=pinned)
        return remote(_run_in_folder).remote(Path.cwd(), list(filter(None, sys.path)), self._work)

    @property
    def running(self) -> int:
        """Number of cases under way, at most."""
        return min(self._workers * len(self._tasks), self._stored.count(0))

    def start(self) -> bool:
        """Return False once all nodes have ended: they start cases themselves."""
        return bool(self._tasks)

    def collect(self) -> Iterator[tuple[Job, CaseEnd]]:
        """Yield the cases that nodes have stored."""
        ended, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=LOOK_EVERY_S)
        for task in ended:
            self._collect_task(task, self._tasks.pop(task)["NodeManagerAddress"])
        if self._tasks and time.monotonic() < self._look_at:
            return
        began = time.monotonic()
        for index, job in enumerate(self._jobs):
            if self._stored[index] or not self._store.has_changed_since_planned(job.case):
                continue
            if (stored := self._store.load_record(job.case)) is not None:
                self._stored[index] = True
                yield job, CaseEnd(stored[0], {"error": stored[1]})
        # This stats a file per case, which takes a while for a large plan, so it is done rarely.
        self._look_at = time.monotonic() + max(LOOK_EVERY_S, 20 * (time.monotonic() - began))

    def interrupt(self) -> None:
        """Interrupt the nodes: each finishes its cases under way."""
        for task in self._tasks:
            self._ray.cancel(task)  # Raises KeyboardInterrupt there.

    def cancel(self) -> None:
        """Kill what still runs."""
        for task in self._tasks:
            self._ray.cancel(task, force=True)

    def _collect_task(self, task: Any, node: str) -> None:
        try:
            self.outcomes.append(self._ray.get(task))
        except self._ray.exceptions.RayError as error:  # The task raised, or its node was lost.
            last = str(getattr(error, "cause", None) or error).strip().splitlines()
            self._failures.append(f"Node {node}: {last[-1] if last else type(error).__name__}")

    def explain_missing(self, tally: RunTally) -> None:
        """Tell the tally why cases have no record, if some have none."""
        if all(self._stored):
            return
        if any(outcome.budget for outcome in self.outcomes):
            tally.meter.has_room()  # Reads what the nodes have spent, which the message says.
            tally.end_by_budget(0)
        fatal = [outcome.fatal for outcome in self.outcomes if outcome.fatal]
        given_up = any(outcome.ended_cells for outcome in self.outcomes)
        if fatal or self._failures:
            tally.stop([*fatal, *self._failures][0], 0)
        elif not given_up and not tally.is_stopped:
            tally.stop(f"{self._stored.count(0)} cases were run by no node.", 0)


def _run_in_folder(here: Path, path: Sequence[str], work: Callable[[], RunOutcome]) -> RunOutcome:
    """Do the work in a Ray process, with the command's working directory and import path."""
    os.chdir(here)
    sys.path.extend(folder for folder in path if folder not in sys.path)
    warnings.filterwarnings("ignore", message="Model output was None")  # From AgentDojo; the records have it.
    return work()
