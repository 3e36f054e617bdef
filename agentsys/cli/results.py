"""`agentsys results`: what stored runs say, as a table or for other programs."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentsys.analysis.metrics.pooled_attacks import together
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.export import as_csv, as_json
from agentsys.analysis.tables.report import Report, report
from agentsys.analysis.tables.report_table import report_table
from agentsys.analysis.tables.results_document import as_html, as_latex, as_markdown
from agentsys.analysis.tables.score_variants import variant_report, variants_of
from agentsys.cli.stored_runs import NamesOption, read_stored, say_unfinished, shown_width, tell_spent
from agentsys.cli.terminal import one_line


class ResultsFormat(StrEnum):
    """How results are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"


_WITHOUT_CAPTION = (ResultsFormat.CSV, ResultsFormat.JSON)
"""Have no room for what the marks of a line mean: it is told beside them."""


def results(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Log, pipeline or suite folders: ours or AgentDojo's published runs."
        ),
    ],
    form: Annotated[
        ResultsFormat, typer.Option("--format", help="csv and json give one row per number.")
    ] = ResultsFormat.TABLE,
    errors: Annotated[
        ErrorRule,
        typer.Option(help="Errored cases: report = left out and counted; agentdojo = failed and attacked."),
    ] = ErrorRule.REPORT,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Beside the official scores, those under repaired checks.")
    ] = False,
    by: Annotated[
        str | None, typer.Option(metavar="TAG", help="Split by a tag of the tasks, e.g. action_open.")
    ] = None,
    as_one: Annotated[
        str | None,
        typer.Option(
            "--together", metavar="PATTERN", help="Attacks of such names, e.g. 'opi_*', as one: their mean."
        ),
    ] = None,
    names: NamesOption = None,
) -> None:
    """Show utility, attack success and defense quality of stored runs, with 95% intervals."""
    reading = read_stored(folders, names, whole_names=form in _WITHOUT_CAPTION)
    if form in _WITHOUT_CAPTION:
        say_unfinished(reading)
    if as_one is not None:
        reading = replace(reading, cases=together(reading.cases, as_one))
    if fixed or by is not None:
        variants = variants_of(reading.cases, fixed=fixed, tag=by)
        found = variant_report(reading, variants, errors)
        if form in _WITHOUT_CAPTION:
            for note in variants.notes:
                print(one_line(note), file=sys.stderr)
    else:
        found = report(reading, errors)
    if form is ResultsFormat.TABLE:
        Console(width=shown_width()).print(report_table(found), crop=False)
        tell_spent(folders)
    else:
        sys.stdout.write(_text(found, form))


def _text(found: Report, form: ResultsFormat) -> str:
    match form:
        case ResultsFormat.CSV:
            return as_csv(found.long_form)
        case ResultsFormat.JSON:
            return as_json(found.long_form)
        case ResultsFormat.MARKDOWN:
            return as_markdown(found)
        case ResultsFormat.HTML:
            return as_html(found)
        case _:
            return as_latex(found)
