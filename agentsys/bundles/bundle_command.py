"""`agentsys bundle` and `agentsys verify`: a log folder as one file, and its cases run again.

A reviewer verifies a bundle offline: each case is run from the bundle's own replies and compared with its
record.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsys.base.grouping import format_count
from agentsys.bundles.confined_process import confine_process, is_confined, run_confined
from agentsys.cli.cli_output import print_line
from agentsys.cli.exit_status import raise_on_stop_signals
from agentsys.cli.terminal import escape_to_line

if TYPE_CHECKING:
    from agentsys.bundles.verify_bundle import Verification, VerifiedCase
    from agentsys.records.schema import CaseRecord
    from agentsys.runs.plan import Job
    from agentsys.runs.run_totals import Listener


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The log folder of runs (logdir).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The bundle. Default: DIR.bundle.zip beside the folder."),
    ] = None,
) -> None:
    """Pack records, configs and the replies of models into one file; `agentsys verify` runs it again."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.bundles.pack_bundle import pack_bundle

    file = out or folder.absolute().with_name(f"{folder.absolute().name}.bundle.zip")
    packed = pack_bundle(folder, file)
    attempts = f", {format_count(packed.attempts, 'attempt')} of searches" if packed.attempts else ""
    size = packed.file.stat().st_size / 1e6
    print_line(
        f"{packed.file}: {format_count(packed.records, 'record')}{attempts}, "
        f"{format_count(packed.replies, 'reply', 'replies')}, {size:.1f} MB."
    )
    if packed.unfinished:
        print_line(
            f"Without a record: {format_count(packed.unfinished, 'planned case')}; the bundle says so too."
        )
    for note in packed.notes:
        print_line(escape_to_line(f"{note}."))
    with packed.file.open("rb") as content:
        print_line(f"SHA-256, to be printed beside it: {hashlib.file_digest(content, 'sha256').hexdigest()}")
    print_line(f"Next: agentsys verify {shlex.quote(str(packed.file))}")


EXIT_DIFFERS = 1
"""Exit status where something is not as the bundle says."""
_MAX_ENTRIES = 20
_REPORT_EVERY = 100
_OFFLINE_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
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
    if not is_confined():
        chosen = ["--output", output.value, "--workers", str(workers), *(["--trust-code"] * trust_code)]
        with raise_on_stop_signals():
            raise typer.Exit(run_confined(["verify", str(file.absolute()), *chosen]))
    confine_process()
    os.environ.update(_OFFLINE_ENVIRONMENT)
    from agentsys.bundles.verify_bundle import verify_bundle as verified

    warnings.filterwarnings("ignore", message="Model output was None")
    # Some of AgentDojo's checkers print.
    with raise_on_stop_signals(), redirect_stdout(io.StringIO()):
        found = verified(file, listener=_make_progress_printer, workers=workers, trust_code=trust_code)
    if output is VerifyOutput.JSON:
        sys.stdout.write(f"{json.dumps(_build_document(found), indent=2)}\n")
    else:
        _print_verification(found)
    if not found.is_verified:
        raise typer.Exit(EXIT_DIFFERS)


def _make_progress_printer(jobs: Sequence[Job]) -> Listener:
    """A listener that says on standard error how far it is, now and then."""
    # Here, because what runs need takes longer to import than `--help` may.
    from agentsys.runs.run_totals import Listener

    class ProgressPrinter(Listener):
        def __init__(self) -> None:
            self._planned, self._done = len(jobs), 0
            self._print_line(f"Running {format_count(len(jobs), 'case')} again; no model is asked.")

        def finished(self, record: CaseRecord) -> None:
            """Count a case."""
            self._done += 1
            if self._done % max(_REPORT_EVERY, self._planned // 10) == 0:
                self._print_line(f"{self._done:,} of {self._planned:,}")

        def stopping(self, why: str, running: int) -> None:
            """Say that it is ending early."""
            self._print_line(escape_to_line(f"Stopping: {why}"))

        def _print_line(self, line: str) -> None:
            print(line, file=sys.stderr)

    return ProgressPrinter()


def _print_verification(found: Verification) -> None:
    from agentsys.bundles.verify_bundle import VerifyOutcome

    equal, differs, errors, not_run = (
        found.counts[outcome]
        for outcome in (
            VerifyOutcome.EQUAL,
            VerifyOutcome.DIFFERS,
            VerifyOutcome.ERROR_THEN,
            VerifyOutcome.NOT_RUN,
        )
    )
    _print_first([f"Changed or missing: {line}"] for line in found.changed)
    bad = (VerifyOutcome.DIFFERS, VerifyOutcome.NOT_RUN)
    _print_first(_describe_case(case) for case in found.cases if case.outcome in bad)
    for line in found.here.lines:
        print_line(escape_to_line(f"Other here than then: {line}"))
    if found.unfinished:
        print_line(f"Planned and without a record, then as now: {format_count(found.unfinished, 'case')}.")
    if errors:
        several = format_count(errors, "case")
        print_line(f"Ended in an error then, for want of a reply: {several}; nothing to compare.")
    if found.ended:
        print_line(escape_to_line(f"Stopped early: {found.ended}"))
    print_line(
        f"{'Holds' if found.is_verified else 'Does not hold'}: of {format_count(len(found.cases), 'record')} "
        f"{equal:,} equal, {differs:,} different, {not_run:,} not run."
    )


def _describe_case(case: VerifiedCase) -> list[str]:
    head = f"{case.outcome.value.replace('_', ' ')}: {case.record}"
    return [head, *(f"  {line}" for line in case.differences), *(f"  why: {line}" for line in case.details)]


def _print_first(entries: Iterable[list[str]]) -> None:
    listed = list(entries)
    for line in (line for entry in listed[:_MAX_ENTRIES] for line in entry):
        print_line(escape_to_line(line))
    if len(listed) > _MAX_ENTRIES:
        print_line(f"and {len(listed) - _MAX_ENTRIES:,} more (--output json has all)")


def _build_document(found: Verification) -> dict[str, Any]:
    return {
        "holds": found.is_verified,
        "records": len(found.cases),
        "counts": {outcome.value: count for outcome, count in sorted(found.counts.items())},
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
