"""`agentsys verify`: a bundle's cases run again from its own replies, each beside its record."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsys.amounts import counted
from agentsys.cli.errors import asked_to_end
from agentsys.cli.output import say
from agentsys.cli.terminal import one_line
from agentsys.runs.executors.outcome import Listener

if TYPE_CHECKING:
    from agentsys.bundles.verify import Verification, VerifiedCase
    from agentsys.records.schema import CaseRecord
    from agentsys.runs.plan import Job

DIFFERS = 1
"""Exit status where something is not as the bundle says."""
_MOST_LINES = 20
_EVERY = 100
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""What keeps detectors' libraries from looking for weights on the network."""


class VerifyOutput(StrEnum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"


def verify(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A file that `agentsys bundle` wrote.")],
    output: Annotated[
        VerifyOutput, typer.Option("--output", "--format", help="text for people; json: every case.")
    ] = VerifyOutput.TEXT,
    trust_code: Annotated[
        bool,
        typer.Option("--trust-code", help="Execute source files that the bundle brings. Read them first."),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Cases under way at once.")] = 4,
) -> None:
    """Run a bundle's cases again from its own replies (no key, no network), score them, and compare.

    Exits with 0 if all is equal, 1 if something differs, 2 if the bundle is refused.
    """
    os.environ.update(_OFFLINE)
    from agentsys.bundles.verify import verify as verified

    warnings.filterwarnings("ignore", message="Model output was None")
    # Some of AgentDojo's checkers print.
    with asked_to_end(), redirect_stdout(io.StringIO()):
        found = verified(file, listener=_Told, workers=workers, trust_code=trust_code)
    if output is VerifyOutput.JSON:
        sys.stdout.write(f"{json.dumps(_document(found), indent=2)}\n")
    else:
        _show(found)
    if not found.holds:
        raise typer.Exit(DIFFERS)


class _Told(Listener):
    """Says on standard error how far it is, now and then."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._planned, self._done = len(jobs), 0
        self._say(f"Running {counted(len(jobs), 'case')} again; no model is asked.")

    def finished(self, record: CaseRecord) -> None:
        """Count a case."""
        self._done += 1
        if self._done % max(_EVERY, self._planned // 10) == 0:
            self._say(f"{self._done:,} of {self._planned:,}")

    def stopping(self, why: str, running: int) -> None:
        """Say that it is ending early."""
        self._say(one_line(f"Stopping: {why}"))

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr)


def _show(found: Verification) -> None:
    from agentsys.bundles.verify import Outcome

    counts = found.counts
    for line in found.changed[:_MOST_LINES]:
        say(one_line(f"Changed or missing: {line}"))
    _say_rest(found.changed)
    differing = [case for case in found.cases if case.outcome in (Outcome.DIFFERS, Outcome.NOT_RUN)]
    for case in differing[:_MOST_LINES]:
        _show_case(case)
    _say_rest(differing)
    for line in found.here.lines:
        say(one_line(f"Other here than then: {line}"))
    if found.unfinished:
        say(f"Planned and without a record, then as now: {counted(found.unfinished, 'case')}.")
    if counts[Outcome.ERROR_THEN]:
        say(
            f"Ended in an error then, for want of a reply: {counted(counts[Outcome.ERROR_THEN], 'case')}; "
            "nothing to compare."
        )
    if found.ended:
        say(one_line(f"Stopped early: {found.ended}"))
    several = counted(len(found.cases), "record")
    say(
        f"{'Holds' if found.holds else 'Does not hold'}: of {several} {counts[Outcome.EQUAL]:,} equal, "
        f"{counts[Outcome.DIFFERS]:,} different, {counts[Outcome.NOT_RUN]:,} not run."
    )


def _show_case(case: VerifiedCase) -> None:
    say(one_line(f"{case.outcome.value.replace('_', ' ')}: {case.record}"))
    for line in case.differences:
        say(one_line(f"  {line}"))
    for line in case.details:
        say(one_line(f"  why: {line}"))


def _say_rest(several: Iterable[Any]) -> None:
    left = len(list(several)) - _MOST_LINES
    if left > 0:
        say(f"and {left:,} more (--output json has all)")


def _document(found: Verification) -> dict[str, Any]:
    counts = found.counts
    return {
        "holds": found.holds,
        "records": len(found.cases),
        "counts": {outcome.value: count for outcome, count in sorted(counts.items())},
        "changed_members": list(found.changed),
        "other_here": {
            "versions": list(found.here.versions),
            "code": list(found.here.code),
            "datasets": list(found.here.data),
        },
        "unfinished": found.unfinished,
        "ended": found.ended,
        "cases": [
            {
                "record": case.record,
                "outcome": case.outcome.value,
                "differences": list(case.differences),
                "why": [why.value for why in case.why],
                "details": list(case.details),
            }
            for case in found.cases
        ],
    }
