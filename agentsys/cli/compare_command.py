"""`agentsys compare`: defenses, models, attacks or whole runs against one of them, on the same cases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.compared_sides import Axis, choose_sides
from agentsys.analysis.metrics.comparison import COMPARED_METRICS, compare_sides
from agentsys.analysis.metrics.rates import METRICS
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.tables.comparison_document import compare_output, count_notes
from agentsys.analysis.tables.table_document import OutputFormat
from agentsys.cli.cli_output import ConfigDirOption, FormatOption, OutOption, PluginPathOption, write_output
from agentsys.cli.stored_runs import (
    CasesOption,
    ErrorsOption,
    NamesOption,
    load_own_metrics,
    print_unfinished,
    read_stored_runs,
)
from agentsys.cli.terminal import escape_to_line


def compare_command(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders of stored runs; two that hold the same cases: A B."),
    ],
    by: Annotated[
        Axis | None,
        typer.Option(help="What is compared. Default: what the folders differ in, else what varies in them."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The one that the others are compared with. Default: none, else the first."),
    ] = None,
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
    ] = 1,
    full: Annotated[bool, typer.Option("--full", help="List all flipped cases.")] = False,
    errors: ErrorsOption = ErrorRule.REPORT,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
    names: NamesOption = None,
    of_version: CasesOption = None,
) -> None:
    """Compare defenses, models, attacks or runs on the same cases: differences with intervals, and flips."""
    asked = metric or COMPARED_METRICS
    own = load_own_metrics(asked, config_dir, plugin_path)
    chosen = choose_sides(
        folders,
        by,
        baseline,
        lambda some: read_stored_runs(some, names, whole_names=form.for_programs, version=of_version),
    )
    for reading in chosen.readings.values():
        print_unfinished(reading)
    standard = [name for name in asked if name in METRICS]
    found = compare_sides(chosen.sides, baseline, standard, errors, own=own)
    if form is OutputFormat.CSV:
        for note in (*found.notes, *count_notes(found)):
            print(escape_to_line(note), file=sys.stderr)
    write_output(compare_output(found, None if full else flips), form, out)
    if not any(pairing.pairs for pairing in found.pairings.values()):
        print(
            "Nothing was compared: no case stands on two sides. If a model or a defense was misread, say what it is:"
            " --names FILE.",
            file=sys.stderr,
        )
        raise typer.Exit(1)
