"""All figures of the harness's speed in one run, on one machine: `make bench`.

Usage: python perf/bench.py [--quick] [--only throughput cpu] [--workers 64] [--write]

Each part prints a Markdown table as it is measured; `--write` puts each at once, with the machine and the
date, into its place in perf/README.md. What cannot run here is named with the reason. Seconds depend on the
machine and on what else it does; ratios, shares and CPU seconds do so far less.

  throughput  against AgentDojo's runner by latency and workers, with the share of what
              the latency and the CPUs allow, CPU and memory
  sdk         what OpenAI's SDK alone reaches of the latency's limit: the most that any runner on it could
  cpu         CPU per case of AgentDojo's runner and ours
  ray         one node against two, where Ray is installed
  records     a finished run of 10,000 cases recognised; 1,000 to 50,000 stored records read and tabulated
  tokens      what each defense takes, as a multiple of the undefended agent
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import bench_records
import sdk_alone
import throughput
from bench_table import Table

README = Path(__file__).parent / "README.md"
DEFENSES = ("agentsys", "agentsys_lean", "agentsys_flat", "drift", "melon", "tool_filter", "camel", "progent")


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    quick: bool
    extent: throughput.Extent


PARTS: dict[str, Callable[[Options], Iterator[Table]]] = {
    "throughput": lambda asked: throughput.tables(asked.extent),
    "sdk": lambda asked: sdk_alone.tables(),
    "cpu": lambda asked: throughput.cpu_tables(asked.extent),
    "ray": lambda asked: throughput.ray_tables(quick=asked.quick),
    "records": lambda asked: bench_records.tables(quick=asked.quick),
    "tokens": lambda asked: tokens_tables(quick=asked.quick),
}


def tokens_tables(*, quick: bool) -> Iterator[Table]:
    """Tokens of each defense on part of the benign cases, beside the undefended agent's."""
    from tokens import UNDEFENDED, NotMeasured, measure

    limit = 2 if quick else 5
    try:
        base = measure(UNDEFENDED, limit, ())
    except NotMeasured as why:  # the tokenizer's data come with litellm
        yield Table(f"Tokens are not measured: {why}.")
        return
    rows = [(UNDEFENDED, f"{1000 * base.millions:.0f}", "1.00", f"{base.solved}/{base.cases}")]
    for name in DEFENSES:
        try:
            taken = measure(name, limit, ())
        except NotMeasured as why:
            rows.append((name, "-", "-", f"not measured: {why}"))
            continue
        ratio = taken.millions / base.millions
        rows.append((name, f"{1000 * taken.millions:.0f}", f"{ratio:.2f}", f"{taken.solved}/{taken.cases}"))
    said = (
        f"Thousands of tokens (cl100k) on {base.cases} benign cases, {limit} of each suite, simulated model: "
        "prompts, tools and calls are the defense's own, replies are not a real model's."
    )
    yield Table(said, ("Defense", "Tokens", "x none", "Solved"), rows)


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


def commit() -> str:
    """The commit that is measured, marked where more than the page differs; empty outside a repository."""
    at = _git("describe", "--always", "--exclude=*")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":(exclude){README.name}")
    return f"{at}-dirty" if changed else at


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=README.parent, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


def write(part: str, text: str) -> None:
    """Put a part's tables between its two marks in perf/README.md."""
    page = README.read_text(encoding="utf-8")
    begin, end = (f"<!-- bench: {part}{mark} -->" for mark in ("", " ends"))
    before, rest = page.split(begin)
    README.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few minutes: few cases, workers and records")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument(
        "--workers", type=int, nargs="+", help="throughput: only these, at the longest latency"
    )
    parser.add_argument("--write", action="store_true", help="into perf/README.md, between each part's marks")
    options = parser.parse_args()
    extent = throughput.QUICK if options.quick else throughput.FULL
    if options.workers:
        extent = replace(extent, workers={max(extent.workers): options.workers})
    measured = commit()
    for part in options.only:
        begun = time.time()
        quick = "Quick form. " if options.quick else ""
        said = [f"{quick}{time.strftime('%Y-%m-%d')}, at {measured}. {machine()}."]
        print(f"\n{said[0]}", flush=True)
        for table in PARTS[part](Options(options.quick, extent)):
            said.append(table.text)
            print(f"\n{table.text}", flush=True)
            if options.write:
                write(part, "\n\n".join(said))
        print(f"\n{part} took {(time.time() - begun) / 60:.0f} min.", flush=True)


if __name__ == "__main__":
    main()
