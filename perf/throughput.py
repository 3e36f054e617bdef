"""Both runners on one server: CPU per case, and cases a second by latency and workers.

AgentDojo's runner does one case at a time, so it does a subset, evenly spread over each suite, and its time
for the rest is taken to be as long per model call. Both must come to the same results on every case that both
ran.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench_table import Table
from served_model import ServedModel, served_model
from sides import Executor, Measured, Pair, apart, grid

SUITES = ("workspace", "travel", "banking", "slack")
MOST = 949
"""Attacked cases of all four suites."""
EIGHT = Executor(workers=8)
RAY_LATENCY_MS = 500.0
"""Long enough for the CPU of a machine that both nodes share not to be the limit."""
RAY_WORKERS = 16
"""Cases under way at once on each node."""
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    workers: dict[float, Sequence[int]]
    """Latency in milliseconds -> workers."""
    subset: int
    """Cases of each suite that AgentDojo's runner does."""
    per_worker: int
    """Cases for each of our workers."""
    short: int
    """Most cases at other latencies than the longest."""
    cpu_sample: int
    """Cases of each suite for the CPU per case of both runners."""
    whole: Sequence[int] = ()
    """Workers that do the whole grid at the longest latency."""

    def cases(self, latency_ms: float, workers: int) -> int:
        """How many cases so many workers do."""
        longest = latency_ms == max(self.workers)
        if longest and workers in self.whole:
            return MOST
        return min(MOST if self.whole and longest else self.short, max(12, self.per_worker * workers))


FULL = Extent({200.0: (1, 8, 32, 64, 128), 50.0: (32, 64), 0.0: (32,)}, 8, 10, 300, 20, whole=(32, 64, 128))
QUICK = Extent({200.0: (1, 32), 0.0: (32,)}, 2, 4, 128, 4)


def cpu_tables(extent: Extent) -> Iterator[Table]:
    """CPU of both runners for a case, suite by suite."""
    rows, sums = [], [0.0, 0.0]
    with served_model() as server:
        whole = grid(SUITES, extent.cpu_sample)
        _learn(server, whole, whole)
        for suite in SUITES:
            pairs = [pair for pair in whole if pair[0] == suite]
            stock, mine = (apart(one, server.base_url(), pairs, EIGHT) for one in ("agentdojo", "ours"))
            if stock.results != mine.results or stock.calls != mine.calls:
                raise SystemExit(f"{suite}: the two runners did not do the same.")
            rows.append(_cpu_row(suite, stock.cases, stock.cpu_s, mine.cpu_s))
            sums = [sums[0] + stock.cpu_s, sums[1] + mine.cpu_s]
    rows.append(_cpu_row("all", sum(int(row[1]) for row in rows), *sums))
    said = (
        "CPU of the client for a case, no latency, 8 threads. A sample weighs what is done once for a user "
        "task more than the whole grid does."
    )
    yield Table(said, ("Suite", "Cases", "AgentDojo, ms", "Ours, ms", "Share"), rows)


def _learn(server: ServedModel, stock: Sequence[Pair], ours: Sequence[Pair]) -> None:
    """Let the server learn what each side is going to ask, off the clock."""
    apart("agentdojo", server.base_url(), stock)
    apart("ours", server.base_url(), ours, EIGHT)


def _cpu_row(name: str, cases: int, theirs_s: float, ours_s: float) -> tuple[str, ...]:
    theirs, ours = (f"{1000 * used / cases:.1f}" for used in (theirs_s, ours_s))
    return name, str(cases), theirs, ours, f"{ours_s / theirs_s:.1%}"


def tables(extent: Extent) -> Iterator[Table]:
    """A table for each latency, on one server."""
    with served_model() as server:
        _learn(server, grid(SUITES, extent.subset), _all_cases(extent))
        for latency_ms in extent.workers:
            yield _by_workers(server, latency_ms, extent)


def _by_workers(server: ServedModel, latency_ms: float, extent: Extent) -> Table:
    passed_on = server.passed_on()
    stock = Stock(
        {
            suite: apart("agentdojo", server.base_url(latency_ms), grid([suite], extent.subset))
            for suite in SUITES
        }
    )
    rows, missing = [], ""
    for executor in map(Executor, extent.workers[latency_ms]):
        pairs = _cases(extent.cases(latency_ms, executor.workers))
        used = server.cpu_s()
        try:
            mine = apart("ours", server.base_url(latency_ms), pairs, executor)
        except subprocess.CalledProcessError as error:
            missing += f" {executor.workers} workers: exit code {error.returncode}."
            continue
        seen = Row(mine, executor, latency_ms, stock.seconds_for(mine), server.cpu_s() - used)
        rows.append(seen.cells)
        print(" | ".join(seen.cells), flush=True)
    said = (
        f"{latency_ms:.0f} ms for each call. AgentDojo's runner: {extent.subset} cases of each suite, "
        f"{stock.calls} calls, {stock.ms_per_call:.0f} ms per call, extrapolated by suite and call. Of all "
        f"requests {server.passed_on() - passed_on} were not known to the server and were passed on to the "
        f"model.{missing}"
    )
    return Table(said, HEAD, rows)


@dataclass(frozen=True)
class Stock:
    """AgentDojo's runner on a part of each suite."""

    by_suite: dict[str, Measured]

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.by_suite.values())

    @property
    def ms_per_call(self) -> float:
        return 1000 * sum(one.wall_s for one in self.by_suite.values()) / self.calls

    def seconds_for(self, mine: Measured) -> float:
        """Seconds that it would take for all our cases, from its time per call in each suite.

        Raises:
            SystemExit: If the two came to different results on a case that both ran.
        """
        for key, result in ((k, r) for one in self.by_suite.values() for k, r in one.results.items()):
            if mine.results.get(key, result) != result:
                raise SystemExit(
                    f"{key}: agentdojo {result}, ours {mine.results[key]}; this compares nothing."
                )
        each = {suite: one.wall_s / one.calls for suite, one in self.by_suite.items()}
        return sum(calls * each[suite] for suite, calls in mine.calls_by_suite.items())


HEAD = (
    "Workers",
    "Cases",
    "Cases/s",
    "x AgentDojo",
    "Of the latency's limit",
    "Middle",
    "Schedule",
    "Client's CPU, ms per case",
    "Server's, ms per call",
    "Of what the CPUs allow",
    "MiB",
)


@dataclass(frozen=True)
class Row:
    """One way to run the cases."""

    mine: Measured
    executor: Executor
    latency_ms: float
    stock_s: float
    server_cpu_s: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as it is printed."""
        mine, executor = self.mine, self.executor
        limit = executor.workers / (self.latency_ms / 1000) if self.latency_ms else 0.0
        return (
            str(executor.workers),
            str(mine.cases),
            f"{mine.cases / mine.wall_s:.1f}",
            f"{self.stock_s / mine.wall_s:.1f}",
            f"{limit_share(mine, executor, self.latency_ms):.0%}" if limit else "-",
            f"{mine.middle_calls_per_s / limit:.0%}" if limit else "-",
            f"{mine.schedule:.0%}" if limit else "-",
            f"{1000 * mine.cpu_s / mine.cases:.1f}",
            f"{1000 * self.server_cpu_s / mine.calls:.2f}",
            f"{cpu_share(mine, self.server_cpu_s):.0%}",
            f"{mine.peak_mb:.0f}",
        )


def limit_share(mine: Measured, executor: Executor, latency_ms: float) -> float:
    """Calls a second as a share of what the latency allows: every worker always waiting for the model."""
    return mine.calls / mine.wall_s / (executor.workers / (latency_ms / 1000))


def cpu_share(mine: Measured, server_cpu_s: float) -> float:
    """Cases a second as a share of what the cores could do, never idle; client and server share them."""
    possible = CORES / ((mine.cpu_s + server_cpu_s) / mine.cases)
    return mine.cases / mine.wall_s / possible


def _all_cases(extent: Extent) -> list[Pair]:
    """Every case that some row asks for."""
    counts = {extent.cases(latency, workers) for latency, some in extent.workers.items() for workers in some}
    return list(dict.fromkeys(pair for count in counts for pair in _cases(count)))


def _cases(wanted: int) -> list[Pair]:
    """About so many cases, evenly spread over the suites and their tasks; from `MOST` on all of them."""
    if wanted >= MOST:
        return grid(SUITES)
    return grid(SUITES, -(-wanted // len(SUITES)))


def ray_tables(*, quick: bool) -> Iterator[Table]:
    """One Ray node and two with as many workers each, both on this machine, or why they are not measured."""
    if importlib.util.find_spec("ray") is None:
        yield Table("Ray on one and two nodes is not measured: it is not installed (extra `distributed`).")
        return
    pairs = grid(SUITES, 8 if quick else 60)
    rows, before = [], 0.0
    with served_model() as server:
        apart("ours", server.base_url(), pairs)  # the server learns
        for nodes in (1, 2):
            executor = Executor(RAY_WORKERS, "ray")
            measured = _on_nodes(nodes, server.base_url(RAY_LATENCY_MS), pairs, executor)
            middle = measured.middle_calls_per_s
            before = before or middle
            workers = RAY_WORKERS * nodes
            share = f"{limit_share(measured, Executor(workers), RAY_LATENCY_MS):.0%}"
            of_limit = middle / (workers / (RAY_LATENCY_MS / 1000))
            numbers = (f"{measured.cases / measured.wall_s:.1f}", share, f"{middle:.1f}", f"{of_limit:.0%}")
            rows.append((str(nodes), str(workers), *numbers, f"{middle / before:.2f}"))
    said = (
        f"Ray, {len(pairs)} cases, {RAY_LATENCY_MS:.0f} ms for each call, {RAY_WORKERS} cases at a time on a "
        "node; both nodes are on this machine."
    )
    yield Table(
        said, ("Nodes", "Workers", "Cases/s", "Of the limit", "Middle calls/s", "Of it", "x one node"), rows
    )


def _on_nodes(nodes: int, base_url: str, pairs: list[Pair], executor: Executor) -> Measured:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=2)
        cluster.wait_for_nodes()
        return apart("ours", base_url, pairs, replace(executor, address=cluster.address))
    finally:
        cluster.shutdown()
