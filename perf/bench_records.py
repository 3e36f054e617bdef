"""A finished run of many cases recognised, and many stored records read: CPU seconds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import loading
from bench_table import Table
from sides import child_cpu_s

EPOCHS = 11
"""Times the 949 attacked cases: 10,439."""


def tables(*, quick: bool) -> Iterator[Table]:
    """Resuming, then reading."""
    yield _resumed(1 if quick else EPOCHS)
    if not loading.ARCHIVE.exists():
        yield Table(f"Reading is not measured: {loading.ARCHIVE.name} is not here.")
        return
    with tempfile.TemporaryDirectory() as folder:
        traces = loading.unpacked(Path(folder))
        yield Table(_READ, ("Records", *_COLUMNS), [_read(traces, n) for n in _sizes(quick=quick)])


def _sizes(*, quick: bool) -> Sequence[int]:
    return (1_000,) if quick else (1_000, 10_000, 50_000)


def _resumed(epochs: int) -> Table:
    """A run that is finished, begun again: nothing is left to do.

    One epoch is run; the records of the others are copies, which the plan reads in the same way.
    """
    with tempfile.TemporaryDirectory() as folder:
        overrides = ["model=simulated", "defense=none", "attack=important_instructions", f"logdir={folder}"]
        _done([sys.executable, "-m", "agentsys", "run", *overrides, "-q", "executor.workers=8"])
        copied = _asked("copy", [*overrides, f"epochs={epochs}"])
        prepared = _asked("resume", [*overrides, f"epochs={epochs}"])
        time.sleep(2.5)  # as in `_read`: younger files are read again
        again = [sys.executable, "-m", "agentsys", "run", *overrides, f"epochs={epochs}", "-q"]
        first, then = (child_cpu_s(again)[0] for _ in range(2))
    assert copied["cases"] == prepared["cases"] and not prepared["todo"], (copied, prepared)
    row = f"{prepared['cases']:.0f}", f"{prepared['cpu_s']:.2f}", f"{first:.2f}", f"{then:.2f}"
    said = (
        "A finished run begun again, CPU seconds: recognised with no index (imports not counted), and the "
        "whole command with its table, twice."
    )
    return Table(said, ("Cases", "Recognised", "`agentsys run`", "then"), [row])


_READ = (
    "Stored records read, CPU seconds: AgentDojo's loader and a frame; every file parsed and no more (the "
    "floor of any loader); `load_runs` with no index and from it; every file asked for its time of change "
    "(the floor of an index); `agentsys results` with no index and from it, start included."
)
_COLUMNS = (
    "AgentDojo",
    "parsed",
    "`load_runs`, first",
    "from the index",
    "times of change",
    "`results`, first",
    "then",
)
_MOST_FOR_AGENTDOJO = 10_000


def _read(traces: Path, records: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        root = loading.many_runs(Path(folder), traces, records)
        time.sleep(2.5)  # files younger than two seconds are not taken from an index
        results = [sys.executable, "-m", "agentsys", "results", str(root), "--format", "csv"]
        first, again = child_cpu_s(results)[0], child_cpu_s(results)[0]
        sides = ("agentdojo+frame", "orjson", "first", "index", "stamps")
        known = {
            side: loading.seconds(side, root)
            for side in sides
            if side != "agentdojo+frame" or records <= _MOST_FOR_AGENTDOJO
        }
    needed = [f"{known[side]:.2f}" if side in known else "-" for side in sides]
    return f"{records:,}", *needed, f"{first:.2f}", f"{again:.2f}"


def _asked(what: str, overrides: Sequence[str]) -> dict[str, float]:
    command = [sys.executable, __file__, what, *overrides]
    return dict(zip(("cases", "todo", "cpu_s"), map(float, _done(command).split()[-3:]), strict=True))


def _done(command: Sequence[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """What a fresh process does: make the records of all epochs, or find that they are there."""
    from agentsys.runs.session import prepare

    what, *overrides = sys.argv[1:]
    start = time.process_time()
    plan = prepare(overrides).plan
    took = time.process_time() - start
    if what == "copy":
        logdir = Path(next(one.removeprefix("logdir=") for one in overrides if one.startswith("logdir=")))
        done = {
            _pair(job.case): (logdir / job.case.key).read_bytes() for job in plan.jobs if job.case.epoch == 0
        }
        for job in plan.todo:
            path = logdir / job.case.key
            path.parent.mkdir(parents=True, exist_ok=True)
            text = done[_pair(job.case)]
            path.write_bytes(text.replace(b'"epoch": 0', f'"epoch": {job.case.epoch}'.encode()))
    print(len(plan.jobs), len(plan.todo), took)


def _pair(case: object) -> tuple[str, ...]:
    return tuple(getattr(case, name) for name in ("suite", "user_task_id", "injection_task_id"))


if __name__ == "__main__":
    main()
