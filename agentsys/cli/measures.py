"""`agentsys measures`: what stored runs cost, and how much untrusted text they let near command tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.measures import measures as measured
from agentsys.analysis.tables.measures_document import measures_output
from agentsys.analysis.tables.output import OutputFormat
from agentsys.analysis.tables.provenance_notes import provenance_notes
from agentsys.cli.output import FormatOption, OutOption, write_output, print_line
from agentsys.cli.stored_runs import NamesOption, ledger_lines, read_stored_runs, print_unfinished
from agentsys.records.names_file import RunNames


def measures_command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Log, pipeline or suite folders.")],
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    names: NamesOption = None,
) -> None:
    """Show untrusted tokens, exposure rounds, cost per solved task and tokens per role of stored runs."""
    reading = read_stored_runs(folders, names, whole_names=form.for_programs)
    print_unfinished(reading)
    shown = measures_output(measured(reading.cases), provenance_notes(reading.cases))
    write_output(shown, form, out, RunNames(names).display_names)
    if form is OutputFormat.TABLE:
        for line in ledger_lines(folders):
            print_line(line)
