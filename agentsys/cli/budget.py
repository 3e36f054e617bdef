"""`agentsys budget`: attack success as a function of the queries that a searching attacker may make."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentsys.analysis.metrics.search_attempts import Searches, read_searches
from agentsys.analysis.metrics.search_budget import BudgetRow, budget_rows
from agentsys.analysis.tables.document import Document
from agentsys.analysis.tables.search_budget_document import budget_csv, budget_document, budget_json
from agentsys.analysis.tables.write_html import html_document
from agentsys.analysis.tables.write_latex import latex_document
from agentsys.analysis.tables.write_markdown import markdown_document
from agentsys.analysis.tables.write_terminal import needed_width, terminal_document
from agentsys.cli.stored_runs import shown_width
from agentsys.cli.terminal import one_line
from agentsys.records.reading_notes import skipped_lines


class BudgetFormat(StrEnum):
    """How the numbers are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"


def budget(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Log folders of runs with attack=pair or tap.")
    ],
    form: Annotated[
        BudgetFormat, typer.Option("--format", help="csv and json give one row per number.")
    ] = BudgetFormat.TABLE,
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
    for line in skipped_lines(searches.skipped):
        print(one_line(line), file=sys.stderr)
    rows = budget_rows(searches.found)
    document = budget_document(rows, searches)
    if form is BudgetFormat.TABLE:
        Console(width=max(needed_width(document), shown_width())).print(terminal_document(document))
    else:
        sys.stdout.write(_text(rows, document, form))
    if figure is not None:
        _draw(searches, figure, model)


def _text(rows: list[BudgetRow], document: Document, form: BudgetFormat) -> str:
    match form:
        case BudgetFormat.CSV:
            return budget_csv(rows)
        case BudgetFormat.JSON:
            return budget_json(rows)
        case BudgetFormat.MARKDOWN:
            return markdown_document(document)
        case BudgetFormat.HTML:
            return html_document(document, "agentsys budget")
        case _:
            return latex_document(document)


def _draw(searches: Searches, out: Path, model: str | None) -> None:
    from agentsys.analysis.figures.budget_figure import budget_figure
    from agentsys.analysis.figures.drawn import save

    stem = out.stem if out.suffix in (".pdf", ".png", ".csv") else out.name
    for path in save(budget_figure(searches.found, stem, model), out.parent):
        # The numbers may be piped on; where the files are is said aside.
        print(one_line(str(path)), file=sys.stderr)
