"""`agentsys compare`: defenses against a baseline on the same cases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.compare import COMPARED_METRICS
from agentsys.analysis.metrics.compare import compare as compared
from agentsys.analysis.metrics.rates import METRICS
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.compare_document import compare_output, count_notes
from agentsys.analysis.tables.output import OutputFormat
from agentsys.cli.output import FormatOption, OutOption, put
from agentsys.cli.stored_runs import (
    ConfigDirOption,
    ErrorsOption,
    NamesOption,
    PluginPathOption,
    own_metrics,
    read_stored,
    say_unfinished,
)
from agentsys.cli.terminal import one_line


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders that hold the runs of both defenses."),
    ],
    baseline: Annotated[str, typer.Option(help="The defense that the others are compared with.")] = "none",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(COMPARED_METRICS)}, or one of your own; may be repeated. Default: these three."
        ),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    flips: Annotated[
        int, typer.Option(min=0, help="Flipped cases to list per metric and direction (json has all).")
    ] = 5,
    errors: ErrorsOption = ErrorRule.REPORT,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
    names: NamesOption = None,
) -> None:
    """Compare defenses on the same cases: differences, 95% intervals, p-values and flipped cases."""
    asked = metric or COMPARED_METRICS
    own = own_metrics(asked, config_dir, plugin_path)
    reading = read_stored(folders, names, whole_names=form.for_programs)
    say_unfinished(reading)
    found = compared(
        reading.cases,
        baseline,
        [name for name in asked if name in METRICS],
        errors,
        own=own,
    )
    if form in (OutputFormat.CSV, OutputFormat.PARQUET):
        for note in count_notes(found):
            print(one_line(note), file=sys.stderr)
    put(compare_output(found, flips), form, out)
