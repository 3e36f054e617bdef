"""One Ray node against two with as many workers each, both on this machine, where each call takes 500 ms."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

from bench_table import Table
from served_model import served_model
from sides import Executor, Measured, apart, grid
from throughput import SUITES, limit_share

from agentsys.catalog import known

LATENCY_MS = 500.0
"""Long enough for the CPU of a machine that both nodes share not to be the limit."""
WORKERS = 16
"""Cases under way at once on each node, in two processes."""


def tables(*, quick: bool) -> Iterator[Table]:
    """A row for one node and one for two, or why there are none."""
    missing = _missing()
    if missing:
        yield Table(f"Ray on one and two nodes is not measured: {missing}.")
        return
    pairs = grid(SUITES, 8 if quick else 60)
    rows, before = [], 0.0
    with served_model() as server:
        apart("ours", server.base_url(), pairs)  # the server learns
        for nodes in (1, 2):
            executor = Executor(WORKERS * nodes, "ray", 2 * nodes)
            measured = _on_nodes(nodes, server.base_url(LATENCY_MS), pairs, executor)
            middle = measured.middle_calls_per_s
            before = before or middle
            share = f"{limit_share(measured, executor, LATENCY_MS):.0%}"
            of_limit = middle / (executor.workers / (LATENCY_MS / 1000))
            numbers = (f"{measured.cases / measured.wall_s:.1f}", share, f"{middle:.1f}", f"{of_limit:.0%}")
            rows.append((str(nodes), str(executor.workers), *numbers, f"{middle / before:.2f}"))
    said = (
        f"Ray, {len(pairs)} cases, {LATENCY_MS:.0f} ms for each call, {WORKERS} cases at a time on a node; "
        "both nodes are on this machine."
    )
    yield Table(
        said, ("Nodes", "Workers", "Cases/s", "Of the limit", "Middle calls/s", "Of it", "x one node"), rows
    )


def _missing() -> str:
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed (extra `distributed`)"
    return "" if "ray" in known("executor") else "this version has no executor=ray"


def _on_nodes(nodes: int, base_url: str, pairs: list[tuple[str, str, str]], executor: Executor) -> Measured:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=2)
        cluster.wait_for_nodes()
        return apart("ours", base_url, pairs, replace(executor, address=cluster.address))
    finally:
        cluster.shutdown()
