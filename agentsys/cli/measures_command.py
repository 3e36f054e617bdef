"""`agentsys measures` and `agentsys budget`: what runs cost, and attack success by the queries allowed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.case_measures import measure_costs as measured
from agentsys.analysis.metrics.search_budget import StoredSearches, budget_rows, read_searches
from agentsys.analysis.tables.cost_documents import budget_output, measures_output
from agentsys.analysis.tables.result_notes import provenance_notes
from agentsys.analysis.tables.table_writers import OutputFormat
from agentsys.cli.cli_output import FormatOption, OutOption, print_line, write_output
from agentsys.cli.stored_runs import NamesOption, ledger_lines, print_unfinished, read_stored_runs
from agentsys.cli.terminal import escape_to_line
from agentsys.records.case_reader import describe_skipped
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


def budget_command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Log folders of runs with attack=pair or tap.")
    ],
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Also draw the curve: OUT.pdf, OUT.png and its numbers, OUT.csv."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Whose searches the figure shows; by default the model with the most.")
    ] = None,
) -> None:
    """Show attack success at a budget of 1, 2, 5, 10, ... queries, and what the searches took."""
    searches = read_searches(folders)
    for line in describe_skipped(searches.skipped):
        print(escape_to_line(line), file=sys.stderr)
    write_output(budget_output(budget_rows(searches.found), searches), form, out)
    if figure is not None:
        _draw_curve(searches, figure, model)


def _draw_curve(searches: StoredSearches, out: Path, model: str | None) -> None:
    from agentsys.analysis.figures.drawing import save_figure
    from agentsys.analysis.figures.line_figures import make_budget_figure

    stem = out.stem if out.suffix in (".pdf", ".png", ".csv") else out.name
    for path in save_figure(make_budget_figure(searches.found, stem, model), out.parent):
        # The numbers may be piped on; where the files are is said aside.
        print(escape_to_line(str(path)), file=sys.stderr)
