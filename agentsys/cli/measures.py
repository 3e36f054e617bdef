"""`agentsys measures`: what stored runs cost, and how much untrusted text they let near command tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.measures import measures as measured
from agentsys.analysis.tables.measures_document import measures_output
from agentsys.analysis.tables.output import OutputFormat
from agentsys.analysis.tables.provenance_notes import provenance_notes
from agentsys.cli.output import FormatOption, OutOption, put, say
from agentsys.cli.stored_runs import NamesOption, paid_lines, read_stored, say_unfinished
from agentsys.records.names_file import Names


def measures(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Log, pipeline or suite folders.")],
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    names: NamesOption = None,
) -> None:
    """Show untrusted tokens, exposure rounds, cost per solved task and tokens per role of stored runs."""
    reading = read_stored(folders, names, whole_names=form.for_programs)
    say_unfinished(reading)
    shown = measures_output(measured(reading.cases), provenance_notes(reading.cases))
    put(shown, form, out, Names(names).shown)
    if form is OutputFormat.TABLE:
        for line in paid_lines(folders):
            say(line)
