"""How long the middleware takes for a tool output of 2 kB, beside a guard that does nothing, and up to 1 MB.

Usage: python perf/guard.py [--repeat N]

CPU time of the process, so that other jobs on the machine count less. Each text is screened once by a fresh
session (nothing is remembered from a text screened before). `reads` is layers 1 and 2 and what layer 3 notes;
`call` judges a call with a body of 2 kB, `passes on` an answer of 2 kB, both after the text was read.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence

from agentsys.benchmarks.vectors.corpus import Half, carrier, corpus
from baselines.middleware import Guard

SIZE = 2048
MEGABYTE = 1_000_000
WANTED = {"p50": 1.0, "p95": 5.0}
"""Milliseconds for `reads` at 2 kB."""


def texts(kind: str, count: int, draw: random.Random) -> list[str]:
    """Outputs of 2 kB put together from the corpus: harmless ones, or with one attack in each."""
    harmless = [text.output for vector in corpus().vectors.values() for text in vector.of(Half.ALL)[1]]
    attacks = [text.output for vector in corpus().vectors.values() for text in vector.of(Half.ALL)[0]]
    everyday = [carrier(one, "The lift is out of order until Friday.") for one in CARRIERS]
    found = []
    for number in range(count):
        parts = [draw.choice(attacks)] if kind == "attack" else []
        pool = harmless if kind == "look-alikes" else everyday
        while sum(map(len, parts)) < SIZE:
            parts.append(draw.choice(pool))
        draw.shuffle(parts)
        found.append(f"{number}\n" + "\n".join(parts)[:SIZE])
    return found


CARRIERS = ("mail", "page", "transaction", "ticket", "readme", "calendar", "review", "log")


def timed(step: Callable[[str], object], given: Sequence[str]) -> list[float]:
    """Milliseconds of CPU per text, sorted."""
    found = []
    for text in given:
        start = time.process_time_ns()
        step(text)
        found.append((time.process_time_ns() - start) / 1e6)
    return sorted(found)


def line(name: str, times: Sequence[float]) -> str:
    """One row: the percentiles."""
    at = [times[min(len(times) - 1, int(len(times) * share))] for share in (0.50, 0.95, 0.99)]
    return f"{name:34} {at[0]:8.3f} {at[1]:8.3f} {at[2]:8.3f}"


def steps() -> dict[str, Callable[[str], object]]:
    """What is measured, by name."""
    guard = Guard()

    def call(text: str) -> object:
        session = guard.session()
        session.reads(text, "tool")
        start = time.process_time_ns()
        session.calls("send_email", {"body": text})
        return start

    def passes_on(text: str) -> object:
        session = guard.session()
        session.reads(text, "tool")
        return session.passes_on(text, "answer")

    return {
        "do nothing": lambda text: text,
        "reads": lambda text: guard.session().reads(text, "tool"),
        "reads, then call": call,
        "reads, then passes on": passes_on,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1000, help="texts of each kind")
    options = parser.parse_args()
    draw = random.Random(0)
    print(f"{'2 kB, ms of CPU':34} {'p50':>8} {'p95':>8} {'p99':>8}")
    Guard().session().passes_on(texts("attack", 1, draw)[0], "answer")  # imports
    for kind in ("everyday", "look-alikes", "attack"):
        for name, step in steps().items():
            given = texts(kind, options.repeat, draw)
            print(line(f"{kind}: {name}", timed(step, given)), flush=True)
    print("\ngrowth (everyday text), CPU seconds")
    for size in (10_000, 100_000, MEGABYTE):
        text = ("The room for Thursday is booked and the coffee was good. " * (size // 50))[:size]
        print(f"{size:>9} {timed(Guard().text, [text])[0] / 1000:8.3f}", flush=True)


if __name__ == "__main__":
    main()
