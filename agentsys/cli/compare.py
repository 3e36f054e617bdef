"""`agentsys compare`: defenses against a baseline on the same cases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.compare import COMPARED_METRICS
from agentsys.analysis.metrics.compare import compare as compared
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.compare_document import compare_output, count_notes
from agentsys.analysis.tables.output import OutputFormat
from agentsys.cli.output import FormatOption, OutOption, put
from agentsys.cli.stored_runs import ErrorsOption, NamesOption, read_stored, say_unfinished
from agentsys.cli.terminal import one_line


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders that hold the runs of both defenses."),
    ],
    baseline: Annotated[str, typer.Option(help="The defense that the others are compared with.")] = "none",
    metric: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(COMPARED_METRICS)}; may be repeated. Default: all."),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    flips: Annotated[
        int, typer.Option(min=0, help="Flipped cases to list per metric and direction (json has all).")
    ] = 5,
    errors: ErrorsOption = ErrorRule.REPORT,
    names: NamesOption = None,
) -> None:
    """Compare defenses on the same cases: differences, 95% intervals, p-values and flipped cases."""
    reading = read_stored(folders, names, whole_names=form.for_programs)
    say_unfinished(reading)
    found = compared(reading.cases, baseline, metric or COMPARED_METRICS, errors)
    if form in (OutputFormat.CSV, OutputFormat.PARQUET):
        for note in count_notes(found):
            print(one_line(note), file=sys.stderr)
    put(compare_output(found, flips), form, out)
