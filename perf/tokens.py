"""Tokens that each defense takes per role, counted with a real tokenizer, beside the paper's Figure 3(b).

Usage: python perf/tokens.py [--defenses agentsys melon] [--limit N] [--set defense.max_depth=1]

The 97 user tasks of AgentDojo v1.2.2 without attack, played by the simulated model (not an LLM), which
follows the ground truth: prompts, tools and calls are the defense's own; how much a real model talks is
not in it. Each defense that can be built here is measured, with the undefended agent first: all others
are given as a multiple of it. What is asked once for a toolset (labels of tools) is counted once.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace

from real_tokens import Counted, Tally

from agentsys.analysis.published import printed_in
from agentsys.catalog import known
from agentsys.errors import ConfigError
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun, guarded, new_run, play
from agentsys.runs.session import prepare

UNDEFENDED = "none"
VERSION = "v1.2.2"


class NotMeasured(Exception):
    """A defense that cannot run here; the message says why."""


@dataclass(frozen=True)
class Measured:
    """What one defense took."""

    cases: int
    solved: int
    """Cases whose user task is solved: a saving that costs utility is none."""
    tally: Tally
    errors: tuple[str, ...]

    @property
    def millions(self) -> float:
        """Tokens of all roles, in millions."""
        return self.tally.tokens.total() / 1e6


def measure(defense: str, limit: int | None, settings: Sequence[str]) -> Measured:
    """Play a defense's cases one after the other and count.

    Raises:
        NotMeasured: If the defense, or the tokenizer, needs something that is not installed.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory() as logdir:
        runs = [_played(counted(job, tally)) for job in _jobs(defense, limit, settings, logdir)]
    errors = tuple(
        f"{run.job.case.suite}/{run.job.case.user_task_id}: {run.error}" for run in runs if run.error
    )
    if errors and not tally.calls:
        raise NotMeasured(errors[0])
    return Measured(len(runs), sum(run.utility for run in runs), tally, errors)


def _jobs(defense: str, limit: int | None, settings: Sequence[str], logdir: str) -> list[Job]:
    given = [one for one in settings if defense != UNDEFENDED or not one.startswith("defense.")]
    chosen = [f"defense={defense}", "model=simulated", "attack=none", f"benchmark.version={VERSION}", *given]
    bound = [] if limit is None else [f"limit={limit}"]
    try:
        return list(prepare([*chosen, *bound, f"logdir={logdir}"]).plan.jobs)
    except ConfigError as error:
        raise NotMeasured(str(error)) from None


def _played(job: Job) -> CaseRun:
    run = new_run(job)
    guarded(run, lambda: play(run))
    if run.ends_run:
        raise NotMeasured(run.error)
    return run


def counted(job: Job, tally: Tally) -> Job:
    """A case whose model is counted by the tokenizer."""
    stack = job.cell.stack
    main = replace(stack.main, provider=Counted(stack.main.provider, tally))
    return replace(job, cell=replace(job.cell, stack=replace(stack, main=main)))


def paper() -> dict[str, float]:
    """The paper's Figure 3(b): defense -> tokens in millions."""
    printed = [number for number in printed_in("figure3b") if number.metric == "total_tokens_millions"]
    return {number.defense: number.value for number in printed}


def line(name: str, measured: Measured, base: Measured, printed: dict[str, float]) -> str:
    """One defense's row."""
    theirs = printed.get(name)
    beside = ("-", "-") if theirs is None else (f"{theirs:.2f}", f"{theirs / printed[UNDEFENDED]:.2f}")
    numbers = (f"{measured.millions:.3f}", f"{measured.millions / base.millions:.2f}", *beside)
    roles = ", ".join(f"{role} {count / 1e6:.3f}" for role, count in measured.tally.tokens.most_common())
    return row(
        name, *numbers, f"{measured.solved}/{measured.cases}", str(measured.tally.calls.total()), roles
    )


def row(
    name: str, tokens: str, ratio: str, paper: str, paper_ratio: str, solved: str, calls: str, by: str
) -> str:
    """One line of the table."""
    return f"{name:30} {tokens:>8} {ratio:>6} {paper:>6} {paper_ratio:>6} {solved:>8} {calls:>6}  {by}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--defenses", nargs="+", default=known("defense"), help="as in configs/defense")
    parser.add_argument("--limit", type=int, help="at most this many cases of each suite")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="OVERRIDE", help="as for agentsys run; defense.* not for none"
    )
    options = parser.parse_args()
    print(" ".join([f"AgentDojo {VERSION}, simulated model, cl100k; tokens in millions.", *options.set]))
    print(row("defense", "tokens", "x none", "paper", "x none", "solved", "calls", "per role"))
    printed = paper()
    base = measure(UNDEFENDED, options.limit, options.set)
    for name in [UNDEFENDED, *(name for name in options.defenses if name != UNDEFENDED)]:
        try:
            measured = base if name == UNDEFENDED else measure(name, options.limit, options.set)
        except NotMeasured as why:
            print(f"{name:30} not measured: {why}", flush=True)
            continue
        print(line(name, measured, base, printed), flush=True)
        for error in measured.errors:
            print(f"{'':30} failed: {error}")


if __name__ == "__main__":
    main()
