"""All figures of the harness's speed in one run, on one machine: `make bench`.

Usage: python perf/bench.py [--quick] [--only throughput records] [--processes 4] [--write]

Each part prints a Markdown table as it is measured; `--write` puts them all, with the machine and the time,
into perf/README.md. What cannot run here is named with the reason. Seconds depend on the machine and on what
else it does; ratios, shares and CPU seconds do so far less.

  throughput  against AgentDojo's runner by latency and workers, threads and processes, with the share of the
              latency limit, CPU and memory
  ray         one node against two, where Ray is installed
  records     a finished run of 10,000 cases recognised; 1,000 to 50,000 stored records read and tabulated
  tokens      what each defense takes, as a multiple of the undefended agent
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import bench_ray
import bench_records
import bench_throughput
import bench_tokens
from bench_table import Table

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- bench: written by `make bench` -->", "<!-- bench ends -->"


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    quick: bool
    processes: int


PARTS: dict[str, Callable[[Options], Iterator[Table]]] = {
    "throughput": lambda asked: bench_throughput.tables(quick=asked.quick, processes=asked.processes),
    "ray": lambda asked: bench_ray.tables(quick=asked.quick),
    "records": lambda asked: bench_records.tables(quick=asked.quick),
    "tokens": lambda asked: bench_tokens.tables(quick=asked.quick),
}


def machine() -> str:
    """One line on what this runs on and how busy it is."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    versions = f"Python {platform.python_version()}, agentdojo {version('agentdojo')}"
    return f"{os.cpu_count()} x {name}, {platform.system()}, {versions}; load at the start {load}"


def write(text: str) -> None:
    """Put the tables between the two marks in perf/README.md."""
    page = README.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few minutes: few cases, workers and records")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--processes", type=int, default=4, help="of executor=processes")
    parser.add_argument("--write", action="store_true", help="into perf/README.md, between its two marks")
    options = parser.parse_args()
    start = time.time()
    said = [machine()]
    print(said[0], flush=True)
    for part in options.only:
        for table in PARTS[part](Options(options.quick, options.processes)):
            said.append(table.text)
            print(f"\n{table.text}", flush=True)
    said.append(
        f"{'Quick form. ' if options.quick else ''}All of it took {(time.time() - start) / 60:.0f} min."
    )
    print(f"\n{said[-1]}")
    if options.write:
        write("\n\n".join(said))


if __name__ == "__main__":
    main()
