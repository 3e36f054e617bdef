"""How much CPU our runner needs per case, as a share of AgentDojo's own on the same server and cases.

Usage: python perf/cpu.py [--sample N] [--suites slack banking]

The served simulated model answers at once, so what is measured is the harness alone. Each side runs
in a fresh process; its CPU (all threads) counts from the first case on. Per suite: milliseconds per
case of both sides, and the share. Both must reach the same results.
"""

from __future__ import annotations

import argparse

from served_model import ServedModel, served_model
from sides import Measured, apart, grid

SUITES = ("workspace", "travel", "banking", "slack")
WANTED = 0.40
"""Most of AgentDojo's CPU time per case that ours may take over the full grid."""


def measure(server: ServedModel, suite: str, sample: int | None) -> tuple[Measured, Measured]:
    """Both sides on one suite."""
    pairs = grid([suite], sample)
    before = server.cpu_s()
    stock = apart("agentdojo", server.base_url, pairs)
    between = server.cpu_s()
    mine = apart("ours", server.base_url, pairs)
    after = server.cpu_s()
    if stock.results != mine.results or stock.calls != mine.calls:
        raise SystemExit(f"{suite}: the two runners did not do the same; the comparison would mean nothing.")
    served = f"server {_ms(between - before, stock.calls):5.2f} | {_ms(after - between, mine.calls):5.2f}"
    print(f"{_line(suite, stock, mine)}   {served} ms per call", flush=True)
    return stock, mine


def _ms(seconds: float, parts: int) -> float:
    return 1000 * seconds / parts


def _line(name: str, stock: Measured, mine: Measured) -> str:
    theirs, own = _ms(stock.cpu_s, stock.cases), _ms(mine.cpu_s, mine.cases)
    return f"{name:10} {stock.cases:6} {stock.calls:6} {theirs:10.1f} {own:8.1f} {own / theirs:7.1%}"


def total(parts: list[Measured]) -> Measured:
    """The suites together."""
    return Measured(
        cases=sum(part.cases for part in parts),
        wall_s=sum(part.wall_s for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        calls_by_suite={suite: calls for part in parts for suite, calls in part.calls_by_suite.items()},
        results={},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, help="at most this many cases of each suite, evenly spread")
    parser.add_argument("--suites", nargs="+", default=SUITES, choices=SUITES)
    options = parser.parse_args()
    print(
        f"{'suite':10} {'cases':>6} {'calls':>6} {'agentdojo':>10} {'ours':>8} {'share':>7}   CPU ms per case"
    )
    with served_model(latency_ms=0) as server:
        measured = [measure(server, suite, options.sample) for suite in options.suites]
    stock, mine = (total(list(side)) for side in zip(*measured, strict=True))
    print(_line("all", stock, mine))
    share = (mine.cpu_s / mine.cases) / (stock.cpu_s / stock.cases)
    print(
        f"CPU: agentdojo {stock.cpu_s:.1f} s, ours {mine.cpu_s:.1f} s for {mine.cases} cases; "
        f"share {share:.1%} (at most {WANTED:.0%} wanted: {'yes' if share <= WANTED else 'NO'})"
    )


if __name__ == "__main__":
    main()
