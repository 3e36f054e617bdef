"""All figures of the harness's speed in one run, on one machine: `make bench`.

Usage: python perf/bench.py [--quick] [--write] [--inspect COMMAND]

Every runner is the command that its user types, started afresh before a server that answers each call after
1 s or 5 s (perf/constant_model.py). `--write` puts the tables, with the machine and the date, into
perf/README.md. `--inspect`: the `inspect` of an environment with inspect_evals (docs/interop.md); without it
Inspect's port is left out. Seconds depend on the machine and on what else it does; ratios, shares of the
latency's limit and CPU seconds do so far less.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from constant_model import CALLS, Served, constant_model
from search_bench import search_rows
from serve_bench import serve_rows

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- bench -->", "<!-- bench ends -->"
SUITES = ("workspace", "travel", "banking", "slack")
SUITE = "banking"
"""What AgentDojo's runner does alone, and what CPU is measured on."""
VERSION = "v1.2.2"
ATTACK = "important_instructions"
AGENTSYS = [sys.executable, "-m", "agentsys"]
INJECTIONS = 5
"""Injection tasks that every suite has, from `injection_task_1`: most that AgentDojo's runner is given."""


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    threads: Sequence[int]
    rounds: int
    """Cases for each thread of ours."""
    injections: int
    """Injection tasks of each suite that AgentDojo's runner does, each under one user task and alone."""
    records: int


FULL = Extent(threads=(32, 64), rounds=4, injections=4, records=50_000)
QUICK = Extent(threads=(64,), rounds=2, injections=1, records=2_000)
LATENCIES_S = (1.0, 5.0)


@dataclass(frozen=True)
class Runner:
    """A way to run cases: a command, and how many of them it does at a time."""

    name: str
    command: Sequence[str]
    """`URL` and `FOLDER` stand for the server and a folder for what it writes."""
    at_a_time: int


@dataclass(frozen=True)
class Measured:
    """What a runner did."""

    served: Served
    cpu_s: float
    """Of the command and the processes it started."""
    again_cpu_s: float
    """Of the same command once more, if that was asked for; else 0."""

    @property
    def calls_per_s(self) -> float:
        """From the first request to the last reply: without the command's start and end."""
        return self.served.calls / self.served.seconds


def ours(threads: int, cases: int, suites: Sequence[str] = SUITES) -> Runner:
    """`agentsys run` with so many threads, on cases spread over the suites."""
    chosen = ["model=served", "model.base_url=URL", "defense=none", f"attack={ATTACK}", "logdir=FOLDER/runs"]
    chosen += [
        f"benchmark.version={VERSION}",
        f"executor.workers={threads}",
        f"limit_per_suite={cases // len(suites)}",
    ]
    chosen += [f"benchmark.suites=[{','.join(suites)}]"]
    return Runner(f"`agentsys run`, {threads} threads", [*AGENTSYS, "run", *chosen, "--quiet"], threads)


def agentdojo(suite: str, injections: int) -> Runner:
    """AgentDojo's own command on one user task of a suite."""
    chosen = ["--model", "GPT_4O_MINI_2024_07_18", "--benchmark-version", VERSION, "--attack", ATTACK]
    chosen += ["--logdir", "FOLDER", "-s", suite, "-ut", "user_task_0"]
    for number in range(injections):
        chosen += ["-it", f"injection_task_{number + 1}"]
    return Runner("AgentDojo, one process", [sys.executable, "-m", "agentdojo.scripts.benchmark", *chosen], 1)


def agentdojo_by_suite(injections: int) -> Runner:
    """The same command once for each suite, all four beside one another."""
    lines = [" ".join(agentdojo(suite, injections).command) for suite in SUITES]
    return Runner("AgentDojo, a process a suite", ["sh", "-c", " & ".join(lines) + " & wait"], len(SUITES))


def inspect_port(program: str, workers: int, cases: int) -> Runner:
    """Inspect's port of AgentDojo, from an environment of its own."""
    chosen = ["inspect_evals/agentdojo", "--model", "openai/gpt-4o"]
    chosen += ["-T", f"workspace={SUITE}", "--limit", str(cases), "--max-connections", str(workers)]
    chosen += ["--max-samples", str(workers), "--display", "none", "--log-dir", "FOLDER"]
    return Runner(f"Inspect's port, {workers} samples", [program, "eval", *chosen], workers)


def measure(runner: Runner, latency_s: float, folder: Path, *, again: bool = False) -> Measured:
    """Run a command before a server of its own; with `again`, twice.

    Raises:
        SystemExit: If the command fails, or calls are missing.
    """
    with constant_model(latency_s) as model:
        words = [
            word.replace("URL", model.base_url).replace("FOLDER", str(folder)) for word in runner.command
        ]
        variables = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}
        cpu_s = cpu_of(words, folder, os.environ | variables, model.watch)
        served = model.served()
        again_cpu_s = cpu_of(words, folder, os.environ | variables) if again else 0.0
    if not served.conversations:
        raise SystemExit(f"{runner.name} ended without a conversation: {' '.join(words)}")
    return Measured(served, cpu_s, again_cpu_s)


def cpu_of(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str] | None = None,
    watch: Callable[[int], None] = lambda pid: None,
) -> float:
    """CPU seconds of a command, its start and its processes included; `watch` is called with its process.

    Raises:
        SystemExit: If it fails, with the end of what it said.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes) as process:
        watch(process.pid)
        said = process.communicate()[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{said[-4000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def throughput_table(latency_s: float, extent: Extent, inspect: str | None) -> Iterator[str]:
    """Every runner at one latency."""
    runners = [agentdojo(SUITE, extent.injections), agentdojo_by_suite(extent.injections)]
    runners += [ours(threads, threads * extent.rounds) for threads in extent.threads]
    if inspect is not None:
        most = max(extent.threads)
        runners.append(inspect_port(inspect, most, most * extent.rounds))
    yield f"{latency_s:.0f} s for each call:\n"
    yield from table_head("Runner", "Cases", "Calls a case", "Cases/s", "Of the limit", "x AgentDojo")
    base = 0.0
    for runner in runners:
        with tempfile.TemporaryDirectory() as folder:
            seen = measure(runner, latency_s, Path(folder))
        base = base or seen.calls_per_s
        yield table_row(
            runner.name,
            str(seen.served.conversations),
            f"{seen.served.calls / seen.served.conversations:.1f}",
            f"{seen.served.conversations / seen.served.seconds:.2f}",
            f"{seen.calls_per_s * latency_s / runner.at_a_time:.0%}",
            f"{seen.calls_per_s / base:.1f}",
        )


def cpu_table(extent: Extent, inspect: str | None) -> Iterator[str]:
    """CPU of each further case: of many cases less that of few, so that the start counts for none."""
    few, many = 4, 4 * (1 + extent.rounds)
    pairs = [
        (agentdojo(SUITE, 1), agentdojo(SUITE, min(1 + extent.rounds, INJECTIONS))),
        (ours(8, few, [SUITE]), ours(8, many, [SUITE])),
    ]
    if inspect is not None:
        pairs.append((inspect_port(inspect, 8, few), inspect_port(inspect, 8, many)))
    yield f"CPU of the client for each further case of {SUITE.title()}, no latency:\n"
    yield from table_head("Runner", "CPU, ms a case", "Share of AgentDojo's")
    base = 0.0
    for pair in pairs:
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            least = measure(pair[0], 0.0, Path(first))
            most = measure(pair[1], 0.0, Path(second))
        cases = most.served.conversations - least.served.conversations
        each = 1000 * (most.cpu_s - least.cpu_s) / cases
        base = base or each
        yield table_row(pair[0].name, f"{each:.0f}", f"{each / base:.0%}")


def around_table(extent: Extent) -> Iterator[str]:
    """What `agentsys run` does before its first request, after its last reply and for each further case."""
    few, many = 128, 128 * (1 + extent.rounds)
    runs = []
    for cases in (few, many):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure(ours(64, cases), 0.0, Path(folder), again=cases == few))
    first, last = runs
    between = [run.served.ended_cpu_s - run.served.begun_cpu_s for run in runs]
    further = (between[1] - between[0]) / (last.served.conversations - first.served.conversations)
    yield f"CPU of `agentsys run` on {few} cases, no latency (0 where the system is not Linux):\n"
    yield from table_head("What", "Seconds")
    yield table_row("until the first request", f"{first.served.begun_cpu_s:.2f}")
    yield table_row(
        "after the last reply, its table and its end", f"{first.cpu_s - first.served.ended_cpu_s:.2f}"
    )
    yield table_row("the same command again, with nothing to do", f"{first.again_cpu_s:.2f}")
    yield table_row(f"each further case, up to {last.served.conversations}", f"{further:.4f}")


def records_table(extent: Extent) -> Iterator[str]:
    """Stored records tabulated, and the start of commands."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(ours(32, 256), 0.0, folder)
        results = [*AGENTSYS, "results", "runs", "--format", "csv"]
        few = folder / "few"
        for path in sorted((folder / "runs").rglob("injection_task_*.json"))[:10]:
            copy_record(path, few / "runs" / path.relative_to(folder / "runs"), 0)
        multiply_records(folder / "runs", extent.records)
        time.sleep(2.5)  # files younger than two seconds are not taken from an index
        first, then = (cpu_of(results, folder) for _ in range(2))
        helped, started = (wall_of(command, few) for command in ([*AGENTSYS, "--help"], results))
        written = [] if find_spec("pyarrow") is None else [*parquet_rows(extent.records, folder)]
        kept = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        checks = [cpu_of([*AGENTSYS, "check", "few/runs"], folder, kept) for _ in range(2)]
        planned, peak = million_of(folder)
    yield "Stored records and the start of commands:\n"
    yield from table_head("What", "Seconds")
    yield table_row(f"`results` of {extent.records:,} records, no index, CPU", f"{first:.2f}")
    yield table_row("the same from the index, CPU", f"{then:.2f}")
    yield from written
    yield table_row("`check` of 10 records, and again, CPU", f"{checks[0]:.2f}, {checks[1]:.2f}")
    yield table_row("dry run of 1,046,000 cases, CPU, and MB at most", f"{planned:.1f}, {peak:.0f}")
    yield table_row("`agentsys --help`, wall time, best of 5", f"{helped:.2f}")
    yield table_row("`agentsys results` of 10 records, wall time, best of 5", f"{started:.2f}")


def parquet_rows(records: int, folder: Path) -> Iterator[str]:
    """The export of a folder `runs`, and `load_runs` of it and of the index."""
    load = "import sys, agentsys; agentsys.load_runs(sys.argv[1])"
    wrote = cpu_of([*AGENTSYS, "export", "parquet", "runs", "--out", "tables"], folder)
    yield table_row(f"`export parquet` of {records:,} records, CPU", f"{wrote:.2f}")
    read, known = (cpu_of([sys.executable, "-c", load, name], folder) for name in ("tables", "runs"))
    yield table_row("`load_runs` of it, and from the index, CPU", f"{read:.2f}, {known:.2f}")


def million_of(folder: Path) -> tuple[float, float]:
    """CPU seconds and MB at most of a dry run of 1,046,000 cases."""
    chosen = ["defense=none,agentsys", f"attack=none,{ATTACK}", "epochs=500", "logdir=planned", "--dry-run"]
    tell = "import resource as r; print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    run = f"import subprocess as s, sys; s.run(sys.argv[1:], check=True, stdout=s.DEVNULL); {tell}"
    command = [sys.executable, "-c", run, *AGENTSYS, "run", *chosen]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, float(done.stdout)


def multiply_records(root: Path, records: int) -> None:
    """Fill a log folder with further epochs of its cases, as `epochs=` would have stored them."""
    shutil.rmtree(root / ".agentsys", ignore_errors=True)
    files = sorted(root.rglob("injection_task_*.json"))
    for number in range(len(files), records):
        source, epoch = files[number % len(files)], number // len(files)
        pipeline, *rest = source.relative_to(root).parts
        copy_record(source, root.joinpath(f"{pipeline}__epoch{epoch}", *rest), epoch)


def copy_record(source: Path, target: Path, epoch: int) -> None:
    """Store a case's record as that of another epoch."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes().replace(b'"epoch": 0', f'"epoch": {epoch}'.encode(), 1))


def wall_of(command: Sequence[str], folder: Path) -> float:
    """Seconds of a command, the best of five."""

    def once() -> float:
        begun = time.perf_counter()
        cpu_of(command, folder)
        return time.perf_counter() - begun

    return min(once() for _ in range(5))


def table_head(*names: str) -> Iterator[str]:
    """The first two lines of a Markdown table."""
    yield table_row(*names)
    yield table_row(*["---"] * len(names))


def table_row(*cells: str) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def tables(extent: Extent, inspect: str | None) -> Iterator[str]:
    """All lines of the tables, each as soon as it is measured."""
    for latency_s in LATENCIES_S:
        yield from throughput_table(latency_s, extent, inspect)
        yield ""
    if inspect is None:
        yield "Inspect's port is not measured here: `--inspect` named none.\n"
    if extent is not QUICK:  # a few cases more vanish in what one start takes more or less than another
        yield from cpu_table(extent, inspect)
        yield ""
    yield from around_table(extent)
    yield ""
    yield from records_table(extent)
    yield ""
    yield "A served agent (`perf/serve_bench.py`):\n"
    yield from table_head("What", "Figures")
    for row in serve_rows():
        yield table_row(*row)
    yield ""
    yield from search_table()


def search_table() -> Iterator[str]:
    """Searches whose whole budget is spent (`perf/search_bench.py`)."""
    yield "Eight searches, 0.2 s for each reply, 16 workers (`perf/search_bench.py`):\n"
    yield from table_head("Attack", "Seconds", "Replies", "Of the limit", "Attempts stored", "Thrown away")
    for row in search_rows():
        yield table_row(*row)


def machine() -> str:
    """One line on what this runs on, how busy it is, and what is measured."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=README.parent,
        capture_output=True,
        text=True,
    )
    at = f", at {done.stdout.strip()}" if done.stdout.strip() else ""
    versions = f"Python {platform.python_version()}, agentdojo {version('agentdojo')}"
    return (
        f"{time.strftime('%Y-%m-%d')}{at}. {os.cpu_count()} x {name}, {platform.system()}, {versions}; "
        f"load at the start {load}. {CALLS} calls a conversation."
    )


def write_tables(text: str, page: Path = README) -> None:
    """Put the tables between the two marks of the page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two minutes: few cases and records")
    parser.add_argument("--write", action="store_true", help="into perf/README.md, between its marks")
    parser.add_argument("--inspect", metavar="COMMAND", help="`inspect` of an environment with inspect_evals")
    options = parser.parse_args()
    lines = [f"{'Quick form. ' if options.quick else ''}{machine()}\n"]
    print(lines[0], flush=True)
    for line in tables(QUICK if options.quick else FULL, options.inspect):
        lines.append(line)
        print(line, flush=True)
    if options.write:
        write_tables("\n".join(lines))


if __name__ == "__main__":
    main()
