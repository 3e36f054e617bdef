"""`agentsys measures`: what stored runs cost, and how much untrusted text they let near command tools."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentsys.analysis.metrics.measures import MeasureRow
from agentsys.analysis.metrics.measures import measures as measured
from agentsys.analysis.tables.measures_document import measures_csv, measures_document
from agentsys.analysis.tables.provenance_notes import provenance_notes
from agentsys.analysis.tables.write_latex import latex_document
from agentsys.analysis.tables.write_markdown import markdown_document
from agentsys.analysis.tables.write_terminal import needed_width, terminal_document
from agentsys.cli.stored_runs import NamesOption, read_stored, say_unfinished, shown_width, tell_spent


class MeasuresFormat(StrEnum):
    """How measures are written."""

    TABLE = "table"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"


def measures(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Log, pipeline or suite folders.")],
    form: Annotated[
        MeasuresFormat, typer.Option("--format", help="csv gives one row per cell, suite and measure.")
    ] = MeasuresFormat.TABLE,
    names: NamesOption = None,
) -> None:
    """Show untrusted tokens, exposure rounds, cost per solved task and tokens per role of stored runs."""
    reading = read_stored(folders, names, whole_names=form is MeasuresFormat.CSV)
    say_unfinished(reading)
    rows, notes = measured(reading.cases), provenance_notes(reading.cases)
    if form is MeasuresFormat.TABLE:
        document = measures_document(rows, notes)
        Console(width=max(needed_width(document), shown_width())).print(terminal_document(document))
        tell_spent(folders)
    else:
        sys.stdout.write(_text(rows, notes, form))


def _text(rows: list[MeasureRow], notes: Sequence[str], form: MeasuresFormat) -> str:
    match form:
        case MeasuresFormat.CSV:
            return measures_csv(rows)
        case MeasuresFormat.MARKDOWN:
            return markdown_document(measures_document(rows, notes))
        case _:
            return latex_document(measures_document(rows, notes))
