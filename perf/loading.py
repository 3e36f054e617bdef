"""How long stored runs take to load: our first load and our index against AgentDojo's own loader.

Usage: python perf/loading.py [--records N] [--traces FOLDER] [--rounds N]

A folder of published AgentDojo runs (by default the ones beside the repository) is copied under new
pipeline names until there are N records, by default 10,000. Each side then reads them all in fresh
processes, in turns, and its fastest turn counts, in seconds of CPU (all threads), which other work on
the machine disturbs least; imports and the disk's first reading are not part of it. Sides:

  agentdojo        agentdojo.benchmark.load_task_results on every file, the results kept
  agentdojo+frame  the same, made into a pandas frame (AgentDojo's own fields, nothing derived)
  orjson           every file read and parsed and nothing more: what no loader of JSON files can beat
  stamps           every file listed and its size and time of change asked for: the same for an index
  first            agentsys.load_runs with no index there: all columns, and the index is written
  index            agentsys.load_runs from the index
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "agentdojo-gpt-4o-mini-2024-07-18.tar.gz"
WANTED = {"first": ("orjson", 7.0), "index": ("stamps", 3.0)}
"""Side -> the side below which it cannot get, and the most times that one's CPU time it may take."""


def agentdojo(root: Path) -> Callable[[], Any]:
    """AgentDojo's loader, file by file; it has none for folders that does not also need the suites."""
    from agentdojo.benchmark import load_task_results

    parts = [(*path.relative_to(root).parts[:4], path.stem) for path in sorted(root.rglob("*.json"))]
    return lambda: [load_task_results(*part, root) for part in parts]


def agentdojo_frame(root: Path) -> Callable[[], Any]:
    """What the loader gives, as a data frame."""
    import pandas as pd

    load = agentdojo(root)
    return lambda: pd.DataFrame([result.model_dump() for result in load()])


def bare_orjson(root: Path) -> Callable[[], Any]:
    """One loop over the files."""
    import orjson

    paths = sorted(root.rglob("*.json"))
    return lambda: [len(orjson.loads(path.read_bytes())) for path in paths]


def stamps(root: Path) -> Callable[[], Any]:
    """What has to be asked of the file system before an index can be trusted."""
    from agentsys.records.index import marks_of
    from agentsys.records.listing import listed

    return lambda: marks_of(listed(root).files, str(root))


def first(root: Path) -> Callable[[], Any]:
    """Our loader, no index there."""
    shutil.rmtree(root / ".agentsys", ignore_errors=True)
    return index(root)


def index(root: Path) -> Callable[[], Any]:
    """Our loader, from the index that the side before has written."""
    import pandas as pd  # noqa: F401  not to be imported while the clock runs

    import agentsys

    load_runs = agentsys.load_runs
    return lambda: load_runs(root)


SIDES = {
    "agentdojo": agentdojo,
    "agentdojo+frame": agentdojo_frame,
    "orjson": bare_orjson,
    "stamps": stamps,
    "first": first,
    "index": index,
}


def multiply(traces: Path, target: Path, records: int) -> None:
    """Copies of published runs, each under a pipeline name of its own, inside the files as well."""
    files = sorted(traces.rglob("*.json"))
    if not files:
        raise SystemExit(f"No JSON files in {traces}. Give a folder of AgentDojo's runs: --traces FOLDER")
    for number in range(records):
        source = files[number % len(files)]
        pipeline, *rest = source.parts[-5:]
        name = f"{pipeline}-copy{number // len(files):03d}"
        path = target.joinpath(name, *rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes().replace(pipeline.encode(), name.encode(), 1))


def seconds(side: str, root: Path) -> float:
    """CPU time of one side in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--side", side, str(root)], stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout.split()[-1])


def run_side(side: str, root: Path) -> None:
    """What the fresh process does."""
    work = SIDES[side](root)
    start = time.process_time()
    kept = work()
    print(time.process_time() - start)
    del kept


def compare(root: Path, rounds: int) -> dict[str, float]:
    """Side -> its fastest turn in seconds of CPU."""
    for path in root.rglob("*.json"):  # so that every side finds the files in memory
        path.read_bytes()
    time.sleep(2.5)  # files younger than two seconds are not taken from an index
    turns = [{side: seconds(side, root) for side in SIDES} for _ in range(rounds)]
    return {side: min(turn[side] for turn in turns) for side in SIDES}


def report(best: dict[str, float], records: int) -> None:
    print(f"{records} records, fastest turn of each side; times as fast as AgentDojo's loader (and frame)")
    loader, frame = best["agentdojo"], best["agentdojo+frame"]
    for side, needed in best.items():
        print(f"{side:16} {needed:8.3f} s {loader / needed:7.1f} x ({frame / needed:.1f} x)")
    for side, (floor, wanted) in WANTED.items():
        ratio = best[side] / best[floor]
        verdict = "yes" if ratio <= wanted else "NO"
        print(f"{side}: {ratio:.1f} times its floor, {floor} (at most {wanted:.0f} wanted: {verdict})")


def many_runs(folder: Path, traces: Path | None, records: int) -> Path:
    """Fill a folder in this one with so many records: copies of those given, or of AgentDojo's."""
    multiply(traces or unpacked(folder), folder / "runs", records)
    return folder / "runs"


def unpacked(folder: Path) -> Path:
    """AgentDojo's published runs, in a folder in this one."""
    if not ARCHIVE.exists():
        raise SystemExit(f"{ARCHIVE} is not here. Give published runs: --traces FOLDER")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder / "traces", filter="data")
    return folder / "traces"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--traces", type=Path, help="a folder of AgentDojo's published runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_side(options.side[0], Path(options.side[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = many_runs(Path(folder), options.traces, options.records)
        report(compare(root, options.rounds), options.records)


if __name__ == "__main__":
    main()
