"""Throughput, CPU and memory by latency and workers, beside AgentDojo's runner on the same server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench_table import Table
from served_model import ServedModel, served_model
from sides import Executor, Measured, Pair, apart, grid
from throughput import SUITES, Subset, extrapolated, limit_share

KINDS = ("threads", "processes")
MOST = 949
"""Attacked cases of all four suites."""


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    latencies_ms: Sequence[float]
    workers: Sequence[int]
    subset: int
    """Cases of each suite that AgentDojo's runner does."""
    per_worker: int
    """Cases for each of our workers, up to the whole grid where the latency is the longest."""
    short: int
    """Most cases at the other latencies, where CPU is what is measured."""
    cpu_sample: int
    """Cases of each suite for the CPU per case of both runners."""


FULL = Extent((0.0, 50.0, 200.0), (1, 8, 32, 64, 128), 8, 10, 300, 20)
QUICK = Extent((0.0, 200.0), (1, 32), 2, 2, 64, 4)


def tables(*, quick: bool, processes: int) -> Iterator[Table]:
    """CPU per case of both runners, then a table for each latency."""
    extent = QUICK if quick else FULL
    with served_model(0.0) as server:
        yield _cpu(server, extent)
    for latency_ms in extent.latencies_ms:
        with served_model(latency_ms) as server:
            yield _by_workers(server, latency_ms, extent, processes)


def _cpu(server: ServedModel, extent: Extent) -> Table:
    rows = []
    for suite in SUITES:
        pairs = grid([suite], extent.cpu_sample)
        stock = apart("agentdojo", server.base_url, pairs)
        mine = apart("ours", server.base_url, pairs, Executor(workers=8))
        if stock.results != mine.results or stock.calls != mine.calls:
            raise SystemExit(f"{suite}: the two runners did not do the same.")
        theirs, own = (1000 * side.cpu_s / side.cases for side in (stock, mine))
        rows.append((suite, str(stock.cases), f"{theirs:.1f}", f"{own:.1f}", f"{own / theirs:.1%}"))
    said = (
        "CPU of the client for a case, no latency, 8 threads; a sample weighs what is done once for a user "
        "task more than the whole grid does (`python perf/cpu.py`)."
    )
    return Table(said, ("Suite", "Cases", "AgentDojo, ms", "Ours, ms", "Share"), rows)


def _by_workers(server: ServedModel, latency_ms: float, extent: Extent, processes: int) -> Table:
    pairs = {suite: grid([suite], extent.subset) for suite in SUITES}
    subsets = {suite: Subset(of, apart("agentdojo", server.base_url, of)) for suite, of in pairs.items()}
    longest = latency_ms == max(extent.latencies_ms)
    most = MOST if longest and extent is FULL else extent.short
    rows, missing = [], ""
    for kind in KINDS:
        for workers in extent.workers if kind == "threads" else extent.workers[1:]:
            executor = Executor(workers, kind, min(processes, workers))
            # The two that an acceptance line names run the whole grid.
            enough = (
                MOST if longest and extent is FULL and workers in (32, 64) else extent.per_worker * workers
            )
            try:
                mine = apart("ours", server.base_url, _cases(min(most, max(enough, 12))), executor)
            except subprocess.CalledProcessError as error:
                missing = (
                    f" {executor.kind} with {workers} workers did not run (exit code {error.returncode})."
                )
                break
            rows.append(_row(mine, executor, latency_ms, extrapolated(subsets, mine)))
    stock_calls = sum(one.measured.calls for one in subsets.values())
    each = 1000 * sum(one.measured.wall_s for one in subsets.values()) / stock_calls
    said = (
        f"{latency_ms:.0f} ms for each call. AgentDojo's runner: {extent.subset} cases of each suite, "
        f"{stock_calls} calls, {each:.0f} ms per call, extrapolated by suite and call. Processes begin on "
        f"the clock; the middle leaves out the first and the last tenth of the cases.{missing}"
    )
    return Table(said, HEAD, rows)


HEAD = (
    "Executor",
    "Workers",
    "Cases",
    "Cases/s",
    "x AgentDojo",
    "Of the limit",
    "Middle",
    "CPU, ms per case",
    "MiB",
)


def _row(mine: Measured, executor: Executor, latency_ms: float, stock_s: float) -> tuple[str, ...]:
    limit = executor.workers / (latency_ms / 1000) if latency_ms else 0.0
    processes = f" ({executor.processes})" if executor.kind == "processes" else ""
    return (
        f"{executor.kind}{processes}",
        str(executor.workers),
        str(mine.cases),
        f"{mine.cases / mine.wall_s:.1f}",
        f"{stock_s / mine.wall_s:.1f}",
        f"{limit_share(mine, executor, latency_ms):.0%}" if limit else "-",
        f"{mine.middle_calls_per_s / limit:.0%}" if limit else "-",
        f"{1000 * mine.cpu_s / mine.cases:.1f}",
        f"{mine.peak_mb:.0f}",
    )


def _cases(wanted: int) -> list[Pair]:
    """About so many cases, evenly spread over the suites and their tasks; from `MOST` on all of them."""
    if wanted >= MOST:
        return grid(SUITES)
    return grid(SUITES, -(-wanted // len(SUITES)))
