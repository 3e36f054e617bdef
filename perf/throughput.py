"""How much faster our runner is than AgentDojo's own where each model call takes 200 ms.

Usage: python perf/throughput.py [--subset 12] [--latency-ms 200] [--suites slack banking]
                                 [--workers 64 --executor processes --processes 4]

Both run the same cases against one server. Ours, 32 workers by default: every attacked case of Slack and
Banking, then of all four suites. AgentDojo's, one case at a time, would take half an hour: it
runs a subset, evenly spread over each suite, and its time for the rest is taken to be as long per
model call. The number of calls is known: on the subset both runners make the same ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from served_model import ServedModel, served_model
from sides import Executor, Measured, Pair, apart, grid

SUITES = ("slack", "banking", "travel", "workspace")
GRIDS = ((("slack", "banking"), 20.0), (SUITES, 14.0))
"""Suites, and how many times AgentDojo's throughput is wanted there."""


@dataclass(frozen=True)
class Subset:
    """AgentDojo's runner on a part of one suite."""

    pairs: list[Pair]
    measured: Measured

    @property
    def s_per_call(self) -> float:
        return self.measured.wall_s / self.measured.calls


def subset_of(server: ServedModel, suite: str, size: int) -> Subset:
    """Run AgentDojo's side on at most `size` cases of a suite, and say which."""
    pairs = grid([suite], size)
    subset = Subset(pairs, apart("agentdojo", server.base_url, pairs))
    chosen = ", ".join(f"{_number(user)}x{_number(injection)}" for _, user, injection in pairs)
    print(f"agentdojo on {len(pairs)} of {suite} (user x injection task: {chosen}):")
    print(f"  {_speed(subset.measured)}, {1000 * subset.s_per_call:.0f} ms per call", flush=True)
    return subset


def compare(
    server: ServedModel,
    suites: Sequence[str],
    subsets: dict[str, Subset],
    wanted: float,
    executor: Executor,
    latency_ms: float,
) -> None:
    """Our side on all cases of some suites, and the ratio to AgentDojo's extrapolated time."""
    before = server.cpu_s()
    mine = apart("ours", server.base_url, grid(suites), executor)
    used = server.cpu_s() - before
    stock_s = extrapolated(subsets, mine)
    ratio = stock_s / mine.wall_s
    print(
        f"ours on all of {', '.join(suites)}: {_speed(mine)}; CPU {mine.cpu_s:.1f} s, server's {used:.1f} s"
    )
    if latency_ms:
        share = limit_share(mine, executor, latency_ms)
        print(f"  {share:.0%} of what so many workers could do, did they only wait")
    print(f"  agentdojo, extrapolated: {stock_s:.1f} s, {mine.cases / stock_s:.2f} cases/s")
    print(
        f"  ratio {ratio:.1f} (at least {wanted:.0f} wanted: {'yes' if ratio >= wanted else 'NO'})",
        flush=True,
    )


def extrapolated(subsets: dict[str, Subset], mine: Measured) -> float:
    """Seconds that AgentDojo would take for all our cases, from its time per call in each suite.

    Raises:
        SystemExit: If the two came to different results on a case that both ran.
    """
    for subset in subsets.values():
        _same_work(subset, mine)
    return sum(calls * subsets[suite].s_per_call for suite, calls in mine.calls_by_suite.items())


def limit_share(mine: Measured, executor: Executor, latency_ms: float) -> float:
    """Calls a second as a share of what the latency allows: every worker always waiting for the model."""
    return mine.calls / mine.wall_s / (executor.workers / (latency_ms / 1000))


def _same_work(subset: Subset, mine: Measured) -> None:
    """Both runners must have come to the same result on every case of the subset."""
    for key, result in subset.measured.results.items():
        if mine.results.get(key, result) != result:
            raise SystemExit(f"{key}: agentdojo {result}, ours {mine.results[key]}; this compares nothing.")


def _number(task_id: str) -> str:
    return task_id.rpartition("_")[2]


def _speed(side: Measured) -> str:
    rate = side.cases / side.wall_s
    return f"{side.cases} cases, {side.calls} calls in {side.wall_s:.1f} s, {rate:.2f} cases/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subset", type=int, default=12, help="cases of each suite that AgentDojo runs")
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--suites", nargs="+", choices=SUITES, help="only these, in one comparison")
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--executor", default="threads", choices=("threads", "processes"))
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    executor = Executor(options.workers, options.executor, options.processes)
    grids = GRIDS if options.suites is None else ((tuple(options.suites), 14.0),)
    with served_model(options.latency_ms) as server:
        subsets = {suite: subset_of(server, suite, options.subset) for suite in grids[-1][0]}
        for suites, wanted in grids:
            compare(server, suites, subsets, wanted, executor, options.latency_ms)


if __name__ == "__main__":
    main()
