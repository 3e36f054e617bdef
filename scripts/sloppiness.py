"""What each slip of a sloppy simulated model costs each defense, as the table of docs/sloppiness.md.

Usage: python scripts/sloppiness.py [--defenses agentsys melon] [--limit 3] [--parts fenced_json all]

For each shipped defense: benign utility, utility under attack and targeted ASR of a simulated model (not an
LLM) that writes exactly what was asked for; then what changes, in points, when every reply that a slip fits
has it (a tenth of them for slips that end a conversation), and when all come together at 0.3. The same cases
each time: per suite at most `--limit` without attack and as many under `--attack`, AgentDojo v1.2.2, seed 0.
The table goes to stdout, the rest to stderr.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from agentsys.catalog import known
from agentsys.errors import ConfigError
from agentsys.models.simulated.sloppiness import ENDING, NEAT, PARTS, Sloppiness, sloppiness_of
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun, guarded, new_run, play
from agentsys.runs.session import prepare

VERSION = "v1.2.2"
ALL = "all"
ALL_RATE = 0.3
FITTING, ENDING_RATE = 1.0, 0.1
"""Rates of a slip alone: in every reply that it fits; one that ends a conversation in a tenth."""


@dataclass(frozen=True)
class Scores:
    """Percentages over the cases that did not fail."""

    values: tuple[float, float, float]
    """Benign utility, utility under attack, targeted ASR."""
    cases: int
    errors: int


class NotRunnable(Exception):
    """A defense that needs something that is not installed; the message says what."""


def jobs_of(defense: str, attack: str, limit: int) -> tuple[Job, ...]:
    """A defense's cases: at most `limit` of each suite without attack, and as many under it.

    Raises:
        NotRunnable: If the defense cannot be built here.
    """
    chosen = ["model=simulated", f"defense={defense}", f"attack=none,{attack}", f"limit={limit}"]
    with tempfile.TemporaryDirectory() as logdir:
        try:
            return prepare([*chosen, f"benchmark.version={VERSION}", f"logdir={logdir}"]).plan.jobs
        except ConfigError as error:
            raise NotRunnable(str(error)) from None


def scores(jobs: Sequence[Job], sloppiness: Sloppiness) -> Scores:
    """Run cases with a model that is this sloppy.

    Raises:
        NotRunnable: If the defense cannot run here.
    """
    runs = [_played(_sloppy(job, sloppiness)) for job in jobs]
    fine = [run for run in runs if run.error_kind is None]
    benign = [run for run in fine if run.job.case.injection_task_id is None]
    attacked = [run for run in fine if run.job.case.injection_task_id is not None]
    values = (
        _percent([run.utility for run in benign]),
        _percent([run.utility for run in attacked]),
        _percent([run.security for run in attacked]),
    )
    return Scores(values, len(fine), len(runs) - len(fine))


def _sloppy(job: Job, sloppiness: Sloppiness) -> Job:
    """The case with another model: preparing it anew for each slip would take most of the time."""
    stack = job.cell.stack
    provider: Any = copy.copy(stack.main.provider)
    provider.options = replace(provider.options, sloppiness=sloppiness)
    stack = replace(stack, main=replace(stack.main, provider=provider))
    return replace(job, cell=replace(job.cell, stack=stack))


def _played(job: Job) -> CaseRun:
    run = new_run(job)
    guarded(run, lambda: play(run))
    if run.ends_run:
        raise NotRunnable(run.error)
    return run


def _percent(results: Sequence[bool]) -> float:
    return 100 * sum(results) / len(results) if results else float("nan")


def sloppiness(part: str) -> Sloppiness:
    """One slip alone, or all."""
    if part == ALL:
        return sloppiness_of("simulated", ALL_RATE)
    return sloppiness_of("simulated", {part: ENDING_RATE if part in ENDING else FITTING})


def line(asked: tuple[str, tuple[str, ...], str, int]) -> tuple[str, int]:
    """One defense's row and its errored cases; or why it has none, and -1."""
    defense, parts, attack, limit = asked
    try:
        jobs = jobs_of(defense, attack, limit)
        neat = scores(jobs, NEAT)
        found = [scores(jobs, sloppiness(part)) for part in parts]
    except NotRunnable as why:
        return f"{defense}: not run: {why}", -1
    cells = [" / ".join(f"{value:.0f}" for value in neat.values), *(_cell(neat, one) for one in found)]
    errors = neat.errors + sum(one.errors for one in found)
    print(f"{defense}: {neat.cases} cases, {errors} errors", file=sys.stderr, flush=True)
    return f"| {defense} | {' | '.join(cells)} |", errors


def _cell(neat: Scores, sloppy: Scores) -> str:
    """What was gained, in points; a dot where nothing changed; or that every case ended as an error."""
    if any(math.isnan(value) for value in sloppy.values):
        return "errors"
    gained = [round(after - before) for before, after in zip(neat.values, sloppy.values, strict=True)]
    return " / ".join(f"{points:+d}" if points else "0" for points in gained) if any(gained) else "·"


def table(rows: Iterable[str], parts: Sequence[str]) -> str:
    """The Markdown table."""
    heads = ["defense", "neat", *(f"all, {ALL_RATE:g}" if p == ALL else p.replace("_", " ") for p in parts)]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--defenses", nargs="+", default=known("defense"), help="as in configs/defense")
    parser.add_argument("--parts", nargs="+", default=[*PARTS, ALL], choices=[*PARTS, ALL], metavar="PART")
    parser.add_argument("--attack", default="important_instructions")
    parser.add_argument("--limit", type=int, default=3, help="cases of each suite, with and without attack")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    jobs = [(name, tuple(given.parts), given.attack, given.limit) for name in given.defenses]
    with ProcessPoolExecutor(given.workers) as pool:
        found = list(pool.map(line, jobs))
    print(table([row for row, errors in found if errors >= 0], given.parts))
    for row, errors in found:
        if errors < 0:
            print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
