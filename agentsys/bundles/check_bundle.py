"""`check_bundle`: run a bundle's cases again, offline and confined, and say what `agentsys check` prints of it.

As a program (`python -m agentsys.bundles.check_bundle FILE WORKERS TRUST`) it is the child that does the work:
each case is run from the bundle's own replies and compared with its record; the outcome is printed as JSON.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from agentsys.base.grouping import format_count
from agentsys.bundles.confined_process import confine_process, run_confined
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck

if TYPE_CHECKING:
    from agentsys.bundles.verify_bundle import Verification
    from agentsys.records.schema import CaseRecord
    from agentsys.runs.plan import Job
    from agentsys.runs.run_totals import Listener

_REPORT_EVERY = 100
_OFFLINE_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""What keeps detectors' libraries from looking for weights on the network."""


def check_bundle(runs: RunsToCheck) -> Iterator[CheckFinding]:
    """Give the findings about a bundle; none about a folder.

    Raises:
        ConfigError: If the bundle is refused, or this machine lacks something it needs.
    """
    if not runs.given.is_file():
        return
    place = [str(runs.given.absolute()), str(runs.workers), str(int(runs.trust_code))]
    status, said = run_confined(["agentsys.bundles.check_bundle", *place])
    if status == 2:
        raise ConfigError(said.strip())
    try:
        found = json.loads(said)
    except ValueError:
        raise RuntimeError(f"the bundle's cases could not be run again (status {status})") from None
    yield from (CheckFinding(**(one | {"details": tuple(one["details"])})) for one in found)


def list_findings(found: Verification) -> Iterator[CheckFinding]:
    """What a verification comes to: the cases that were run again, members that changed, what was planned."""
    from agentsys.bundles.verify_bundle import VerifyOutcome

    bad = [case for case in found.cases if case.outcome in (VerifyOutcome.DIFFERS, VerifyOutcome.NOT_RUN)]
    details = [
        f"{case.outcome.value.replace('_', ' ')}: {case.record}: {'; '.join([*case.differences, *case.why])}"
        for case in bad
    ]
    if found.ended:
        details.insert(0, f"Stopped early: {found.ended}")
    equal, errors = found.counts[VerifyOutcome.EQUAL], found.counts[VerifyOutcome.ERROR_THEN]
    text = f"{equal:,} of {format_count(len(found.cases), 'record')} equal when run from the bundle's replies"
    if errors:
        text += f"; {format_count(errors, 'case')} ended in an error then: nothing to compare"
    grade = "broken" if bad or found.ended else "valid"
    yield CheckFinding(
        "Run again", grade, text, (*details, *(f"Other here: {line}" for line in found.here.lines))
    )
    if found.changed:
        lines = tuple(f"Changed or missing: {line}" for line in found.changed)
        yield CheckFinding("Members", "broken", "the file is not as it was packed", lines)
    else:
        yield CheckFinding("Members", "valid", "every member is as it was packed")
    if found.unfinished:
        count = format_count(found.unfinished, "planned case")
        yield CheckFinding("Planned", "broken", f"{count} had no record when it was packed")


def main(arguments: Sequence[str]) -> int:
    """Verify a bundle inside the child; the status is 2 where it is refused, with the reason as the output."""
    confine_process()
    os.environ.update(_OFFLINE_ENVIRONMENT)
    from agentsys.bundles.verify_bundle import verify_bundle

    warnings.filterwarnings("ignore", message="Model output was None")
    file, workers, trust = arguments
    try:
        # Some of AgentDojo's checkers print.
        with redirect_stdout(io.StringIO()):
            found = verify_bundle(
                Path(file), listener=_make_progress_printer, workers=int(workers), trust_code=trust == "1"
            )
    except ConfigError as error:
        sys.stdout.write(str(error))
        return 2
    json.dump([asdict(one) for one in list_findings(found)], sys.stdout)
    return 0


def _make_progress_printer(jobs: Sequence[Job]) -> Listener:
    """A listener that says on standard error how far it is, now and then."""
    from agentsys.runs.run_totals import Listener

    class ProgressPrinter(Listener):
        def __init__(self) -> None:
            self._done = 0
            self._print_line(f"Running {format_count(len(jobs), 'case')} again; no model is asked.")

        def finished(self, record: CaseRecord) -> None:
            """Count a case."""
            self._done += 1
            if self._done % max(_REPORT_EVERY, len(jobs) // 10) == 0:
                self._print_line(f"{self._done:,} of {len(jobs):,}")

        def _print_line(self, line: str) -> None:
            sys.stderr.write(f"{line}\n")

    return ProgressPrinter()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
