"""`run_on_nodes`: one task on each node of a Ray cluster runs the command, on a log folder that all see.

Nothing else goes through Ray: nodes share cases, rates and a budget as commands on one folder do. Here it is
only seen what they store.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError, StopRequested
from agentsys.models.budget import Meter
from agentsys.runs.executors.outcome import AbandonedCell, Listener, RunOutcome
from agentsys.runs.executors.signals import defer_signals
from agentsys.runs.executors.tally import CaseEnd, RunTally
from agentsys.runs.plan import Jobs
from agentsys.runs.planning.run_order import RunOrder
from agentsys.runs.settings import ExecutorSettings
from agentsys.runs.store import Store

_LOOK_EVERY_S = 1.0


def run_on_nodes(
    work: Callable[[], RunOutcome],
    jobs: Jobs,
    executor: ExecutorSettings,
    *,
    store: Store,
    listener: Listener,
    meter: Meter | None,
) -> RunOutcome:
    """Run every job on the nodes of a cluster; for the rest as `threads.execute` does.

    Args:
        work: The command; called once on each node.
        jobs: The cases that it runs.
        executor: Says which cluster it is, and how many cases are under way on a node.
        store: Where records go.
        listener: Is told of each record, in the calling thread.
        meter: What the run spends and may spend; None: it has no budget.

    Raises:
        ConfigError: If there is no cluster at the address.
    """
    with _join_cluster(executor.address) as ray:
        tally = RunTally(RunOrder(jobs, 1), listener, meter)
        return _NodeWatch(ray, work, jobs, tally, store, executor.workers).wait_for_nodes()


@contextmanager
def _join_cluster(address: str | None) -> Iterator[Any]:
    """Ray, joined to the cluster; one that this process has joined before stays as it is."""
    import ray

    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            raise ConfigError(f"executor.address={address}: no Ray cluster is there ({error}).") from None
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


class _NodeWatch:
    """The nodes at work, and what they have stored so far."""

    def __init__(
        self,
        ray: Any,
        work: Callable[[], RunOutcome],
        jobs: Jobs,
        tally: RunTally,
        store: Store,
        workers: int,
    ) -> None:
        self._ray, self._work, self._jobs, self._tally = ray, work, jobs, tally
        self._store, self._workers = store, workers
        self._stored = bytearray(len(jobs))
        self._look_at = 0.0
        self._ended: list[RunOutcome] = []
        self._failures: list[str] = []
        self._waiting = {self._start_task(node): node for node in ray.nodes() if node["Alive"]}

    def wait_for_nodes(self) -> RunOutcome:
        """Watch till all nodes have ended."""
        try:
            with defer_signals() as heed_signals:
                while self._waiting:
                    try:
                        heed_signals()
                        self._poll()
                    except StopRequested as asked:
                        self._interrupt(asked.number)
                    except KeyboardInterrupt:
                        self._interrupt(signal.SIGINT)
        finally:
            for task in self._waiting:
                self._ray.cancel(task, force=True)
        self._book_stored()
        if not all(self._stored):
            self._explain_missing()
        cells: dict[tuple[str, str, str], AbandonedCell] = {}
        for cell in (cell for one in self._ended for cell in one.ended_cells):
            cells.setdefault(cell.labels, cell)
        return replace(self._tally.outcome, ended_cells=tuple(cells.values()))

    def _start_task(self, node: dict[str, Any]) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        # No CPU is asked for: it waits for models. A process of its own, which no other run has changed.
        remote = self._ray.remote(num_cpus=0, max_retries=0, max_calls=1, scheduling_strategy=pinned)
        return remote(_run_in_folder).remote(Path.cwd(), [place for place in sys.path if place], self._work)

    def _poll(self) -> None:
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=_LOOK_EVERY_S)
        for task in done:
            self._collect_task(task, self._waiting.pop(task)["NodeManagerAddress"])
        if time.monotonic() >= self._look_at:
            began = time.monotonic()
            self._book_stored()
            # A look asks for a file of each case: of a large plan it takes a while, and is rare.
            self._look_at = time.monotonic() + max(_LOOK_EVERY_S, 20 * (time.monotonic() - began))
        self._tally.listener.tick()

    def _collect_task(self, task: Any, node: str) -> None:
        try:
            self._ended.append(self._ray.get(task))
        except self._ray.exceptions.RayError as error:  # its own error too, or it was lost
            last = str(getattr(error, "cause", None) or error).strip().splitlines()
            self._failures.append(f"Node {node}: {last[-1] if last else type(error).__name__}")

    def _book_stored(self) -> None:
        store = self._store
        for place, job in enumerate(self._jobs):
            found = store.read(job.case) if not self._stored[place] and store.renewed(job.case) else None
            if found is not None:
                self._stored[place] = True
                self._tally.book(job, CaseEnd(found.record, error=found.error), self._running)

    @property
    def _running(self) -> int:
        """Cases under way, at most."""
        return min(self._workers * len(self._waiting), self._stored.count(0))

    def _interrupt(self, number: int) -> None:
        self._tally.interrupt(number, self._running)
        for task in self._waiting:
            self._ray.cancel(task)  # a Ctrl-C there: cases under way are finished

    def _explain_missing(self) -> None:
        """Say why there are cases that no node has run."""
        if any(one.budget for one in self._ended):
            self._tally.end_by_budget(0)
        fatal = [one.fatal for one in self._ended if one.fatal]
        given_up = any(one.ended_cells for one in self._ended)
        if fatal or self._failures:
            self._tally.stop([*fatal, *self._failures][0], 0)
        elif not given_up and not self._tally.is_stopped:
            self._tally.stop(f"{self._stored.count(0)} cases were run by no node.", 0)


def _run_in_folder(here: Path, path: Sequence[str], work: Callable[[], RunOutcome]) -> RunOutcome:
    """Do the work in this process of Ray's, as if it stood where the command was given."""
    os.chdir(here)
    sys.path.extend(place for place in path if place not in sys.path)
    warnings.filterwarnings("ignore", message="Model output was None")  # AgentDojo's; records hold it
    return work()
